"""`kctl storage export`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kctl.cli.options import ConfigOption
from kctl.cli.storage.dead import exported
from kctl.cli.storage.fleet_storage import load_fleet
from kctl.cli.storage.selection import choosing
from kctl.errors import UsageError
from kctl_agent.storage.selection import Selection

__all__ = ["export"]


class ExportFormat(StrEnum):
    """How dead letters are exported."""

    JSONL = "jsonl"


@choosing
def export(
    context: typer.Context,
    selection: Selection,
    config: ConfigOption = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters.")] = False,
    _output: Annotated[
        ExportFormat, typer.Option("--output", "-o", help="One JSON object per line.")
    ] = ExportFormat.JSONL,
) -> None:
    """Write dead letters to stdout as JSON lines: `kctl storage dead export`."""
    if not dead:
        raise UsageError("give what to export: --dead")
    exported(load_fleet(context, config), selection)
