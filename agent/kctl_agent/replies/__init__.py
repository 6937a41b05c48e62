"""Replies of agents: one frozen dataclass per command, declared once for both sides.

Agents publish them, `encode` makes JSON of them, and the control plane decodes the same types (`kctl.rpc.decode`):
unknown fields are ignored, absent ones take their default, None is unknown. Nothing is imported here: each dataclass
costs half a millisecond at import, and `kctl rpc` needs those of one command.
"""
