"""Replies of agents: a frozen dataclass for each command, declared once for both sides.

An agent's threads publish these, `encode` makes JSON of them, and the control plane decodes JSON into the same types
(`kctl.rpc.decode`): unknown fields are ignored, for an agent may be newer; absent ones take the default declared here,
for it may be older. None is unknown. One file per command, and nothing is imported here: a dataclass costs half a
millisecond at its import, and `kctl rpc` needs those of one command.
"""

from __future__ import annotations

__all__: list[str] = []
