"""`kctl pause`"""

from __future__ import annotations

import typer

from kctl.cli.fleet.scope import register_scoped

__all__ = ["register"]

_HELP = """Stop reading a worker, a topic, a partition or everything.

Until it is resumed. Workers stay in their group and keep their partitions; the pause outlives rebalances, restarts
of workers and of the master. `kctl status` shows what is paused, with caller and time. The engine cannot be paused:
it reads nothing itself. It gives up after 30 s, or `--deadline`.

\b
kctl pause --topic orders --partition 3
kctl pause --worker sinker-0
kctl pause --all
"""


def register(app: typer.Typer) -> None:
    register_scoped(app, "pause", _HELP)
