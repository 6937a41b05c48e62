"""What replies of agents and answers of the master hold: types, and how each is read out of JSON.

One file per kind, and nothing is imported here: a dataclass costs the better part of a millisecond at its import, and
`kctl rpc` makes only those of the command that is asked. `kctl.rpc.results` (agents) and `kctl.rpc.answers` (the
master) read; nobody checks again what they have made. None is unknown. The names of the fields are those of the JSON
(`kctl.reduce.encode`), but for `PartitionRow`.
"""

from __future__ import annotations

__all__: list[str] = []
