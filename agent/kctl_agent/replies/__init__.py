"""Replies of agents: a frozen dataclass for each command, declared once for both sides.

An agent publishes these, `encode` makes JSON of them, and the control plane decodes the same types (`kctl.rpc.decode`):
unknown fields are ignored, absent ones take the default declared here, None is unknown. One file per command, and
nothing is imported here: a dataclass costs half a millisecond at its import, and `kctl rpc` needs those of one command.
"""
