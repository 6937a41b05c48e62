"""`kctl storage optimize` and `vacuum`: maintain a table's files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

from kctl.audit import fleet_log, operation
from kctl.cli.command import option
from kctl.cli.confirm import confirm
from kctl.cli.options import ConfigOption, YesOption, load_fleet
from kctl.cli.output import echo
from kctl.dead_letters.storage import opened_lake
from kctl.errors import UsageError
from kctl_agent.rpc.messages import number_of

if TYPE_CHECKING:
    from kctl.config.sections import Config
    from kctl_agent.storage.lake.maintenance.compaction import Group
    from kctl_agent.storage.lake.table_storage import TableStorage


def optimize(
    config: ConfigOption = None,
    dry_run: Annotated[bool, option("--dry-run", help="Only show what would be compacted.")] = False,
) -> None:
    """Compact the small files of a table (mode `lake`) and of its dead letters.

    Replaces them with files of about `storage.target_file_bytes`. Rows, stored offsets and older versions do not
    change; `kctl storage vacuum` removes the replaced files. Foreign files, written by other programs than Spark and
    kctl, are rewritten because their statistics may hide rows from queries. The fleet may run meanwhile.
    """
    _each_table(config, partial(_optimized, dry_run=dry_run))


def _optimized(fleet: Config, lake: TableStorage, *, dry_run: bool) -> str:
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
        running.text = str(compaction.run(small + inexact, lambda version: sys.stderr.write(f"version {version} …\n")))
    return running.text


def _counted(groups: list[Group], what: str) -> list[str]:
    from kctl_agent.storage.limits import readable

    files = [file for group in groups for file in group]
    partitions = len({tuple(file.partition_values.values()) for file in files})
    where = f" in {number_of(partitions, 'partition')}" if partitions > 1 else ""
    return [f"{number_of(len(files), what)} ({readable(sum(file.size for file in files))}){where}"] if files else []


def vacuum(
    config: ConfigOption = None,
    retention_hours: Annotated[
        int | None,
        option(
            "--retention-hours",
            least=0,
            metavar="N",
            help="Keep files that were replaced or written since. Default: the table's setting, or else 168.",
        ),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="Only print the files.")] = False,
    yes: YesOption = False,
) -> None:
    """Remove files that a table (mode `lake`) and its dead letters no longer need.

    Removes files that no version of the last seven days uses; older versions become unreadable. Shows them and asks
    first. Files of a batch in progress stay, however old.
    """
    _each_table(config, partial(_vacuumed, retention_hours=retention_hours, dry_run=dry_run, yes=yes))


def _each_table(config: ConfigOption, done: Callable[[Config, TableStorage], str]) -> None:
    fleet = load_fleet(config)
    if not fleet.storage.kind.is_table:
        raise UsageError(f'storage.mode is "{fleet.storage.mode}": only a table (mode `lake`) has such files')
    with opened_lake(fleet) as lake:
        with lake.table.state():  # raises if there is none yet
            pass
        for number, table in enumerate(lake.tables()):
            echo(f"{'dead letters: ' if number else ''}{done(fleet, table)}")


def _vacuumed(fleet: Config, lake: TableStorage, *, retention_hours: int | None, dry_run: bool, yes: bool) -> str:
    from kctl_agent.storage.lake.maintenance.vacuum import remove, unused
    from kctl_agent.storage.limits import readable

    found = unused(lake.table, retention_hours)
    if not found:
        return "no files to remove"
    what = f"{number_of(len(found), 'file')} ({readable(sum(file.size for file in found))})"
    if dry_run:
        echo("\n".join(file.name for file in found))
        return f"would remove {what}"
    if not yes:
        confirm(f"Remove {what} of {lake.identity} for good?")
        # The answer may have taken a day, in which a restored version may need them again.
        still = {file.name for file in unused(lake.table, retention_hours)}
        found = [file for file in found if file.name in still]
    params = {"table": str(lake.folder), "retention_hours": retention_hours}
    with operation(fleet_log(fleet), "storage vacuum", params) as running:
        running.text = f"{number_of(remove(lake.table, found), 'file')} removed"
    return running.text
