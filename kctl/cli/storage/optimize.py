"""`kctl storage optimize`"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from kctl.audit import fleet_log, operation
from kctl.cli.command import option
from kctl.cli.options import ConfigOption
from kctl.cli.output import echo
from kctl.cli.storage.fleet_storage import load_fleet, opened_table
from kctl_agent.rpc.messages import number_of

if TYPE_CHECKING:
    from kctl.config import Config
    from kctl_agent.storage.lake.maintenance.compaction import Group
    from kctl_agent.storage.lake.table_storage import TableStorage

__all__ = ["optimize"]


def optimize(
    config: ConfigOption = None,
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be compacted, and change nothing.")] = False,
) -> None:
    """Compact the small files of a table (mode `lake`).

    Also those of the table of its dead letters. Files of about `storage.target_file_bytes` take their place; rows,
    stored offsets and older versions stay as they are, and `kctl storage vacuum` removes what was replaced. Foreign
    files, of other writers than Spark and kctl, are written anew: their statistics may hide rows from queries. The
    fleet may run meanwhile.
    """
    fleet = load_fleet(config)
    with opened_table(fleet) as lake:
        for number, table in enumerate(lake.tables()):
            echo(f"{'dead letters: ' if number else ''}{_optimized(fleet, table, dry_run=dry_run)}")


def _optimized(fleet: Config, lake: TableStorage, *, dry_run: bool) -> str:
    """What was done, or would be."""
    from kctl_agent.storage.lake.maintenance.compaction import Compaction

    compaction = Compaction(lake.table)
    small = compaction.small_files(lake.target_file_bytes)
    inexact = compaction.inexact_files(besides=small)
    if not small and not inexact:
        return "no small files to compact"
    what = " and ".join([*_counted(small, "small file"), *_counted(inexact, "foreign file")])
    if dry_run:
        return f"would compact {what}"
    with operation(fleet_log(fleet), "storage optimize", {"table": str(lake.folder)}) as running:
        sys.stderr.write(f"compacting {what} …\n")
        running.text = str(compaction.run(small + inexact, _print_version))
    return running.text


def _counted(groups: list[Group], what: str) -> list[str]:
    from kctl_agent.storage.limits import readable

    files = [file for group in groups for file in group]
    partitions = len({tuple(file.partition_values.values()) for file in files})
    where = f" in {number_of(partitions, 'partition')}" if partitions > 1 else ""
    return [f"{number_of(len(files), what)} ({readable(sum(file.size for file in files))}){where}"] if files else []


def _print_version(version: int) -> None:
    sys.stderr.write(f"version {version} …\n")
