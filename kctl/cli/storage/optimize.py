"""`kctl storage optimize`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kctl.audit import fleet_log, operation
from kctl.cli.options import ConfigOption
from kctl.cli.storage.opened import load_fleet, opened_table
from kctl_agent.messages import number_of

if TYPE_CHECKING:
    from kctl.config import Config
    from kctl_agent.storage.lake import LakeStorage

__all__ = ["optimize"]


def optimize(
    context: typer.Context,
    config: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be compacted, and change nothing.")
    ] = False,
) -> None:
    """Compact the small files of a table (mode `lake`).

    Also those of the table of its dead letters. Files of about `storage.target_file_bytes` take their place; rows,
    stored offsets and older versions stay as they are, and `kctl storage vacuum` removes what was replaced. The fleet
    may run meanwhile.
    """
    fleet = load_fleet(context, config)
    with opened_table(fleet) as lake:
        for number, table in enumerate(lake.tables()):
            typer.echo(f"{'dead letters: ' if number else ''}{_optimized(fleet, table, dry_run=dry_run)}")


def _optimized(fleet: Config, lake: LakeStorage, *, dry_run: bool) -> str:
    """What was done, or would be."""
    from kctl_agent.storage.lake.compaction import compact, small_files
    from kctl_agent.storage.room import readable

    with lake.table.latest() as table:
        found = small_files(table, lake.target_file_bytes)
    if not found.files:
        return "no small files to compact"
    where = f" in {number_of(found.partitions, 'partition')}" if found.partitions > 1 else ""
    what = f"{number_of(found.files, 'small file')} ({readable(found.bytes)}){where}"
    if dry_run:
        return f"would compact {what}"
    with operation(fleet_log(fleet), "storage optimize", {"table": str(lake.folder)}) as running:
        sys.stderr.write(f"compacting {what} …\n")
        running.text = str(compact(lake.table, lake.target_file_bytes, _print_version))
    return running.text


def _print_version(version: int) -> None:
    sys.stderr.write(f"version {version} …\n")
