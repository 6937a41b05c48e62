"""`kctl storage export`"""

from __future__ import annotations

from typing import Annotated

from kctl.cli.command import OUTPUT, option
from kctl.cli.options import ConfigOption
from kctl.cli.storage.dead import exported
from kctl.cli.storage.fleet_storage import load_fleet
from kctl.cli.storage.selection import choosing
from kctl.errors import UsageError
from kctl_agent.storage.selection import Selection

__all__ = ["export"]


@choosing
def export(
    selection: Selection,
    config: ConfigOption = None,
    dead: Annotated[bool, option("--dead", help="Dead letters.")] = False,
    _output: Annotated[str, OUTPUT._replace(help="one JSON object per line", choices=("jsonl",))] = "jsonl",
) -> None:
    """Write dead letters to stdout as JSON lines: `kctl storage dead export`."""
    if not dead:
        raise UsageError("give what to export: --dead")
    exported(load_fleet(config), selection)
