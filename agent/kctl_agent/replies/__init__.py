"""Replies of agents: one frozen dataclass per command, declared once for both sides. Nothing is imported here: each
dataclass costs half a millisecond at import, and `kctl rpc` needs those of one command."""
