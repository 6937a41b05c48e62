"""`kctl storage optimize` and `vacuum`: maintain a table's files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kctl.audit import fleet_log, operation
from kctl.cli.command import CONFIG, YES, Command, Option
from kctl.cli.confirm import confirm
from kctl.cli.options import load_fleet
from kctl.cli.output import echo
from kctl.dead_letters.storage import opened_lake
from kctl.errors import UsageError
from kctl_agent.rpc.messages import number_of

if TYPE_CHECKING:
    from kctl.config.sections import Config
    from kctl_agent.storage.lake.maintenance.compaction import Group
    from kctl_agent.storage.lake.table_storage import TableStorage


def _optimized(options: argparse.Namespace, fleet: Config, lake: TableStorage) -> str:
    from kctl_agent.storage.lake.maintenance.compaction import Compaction

    compaction = Compaction(lake.table)
    small = compaction.small_files(lake.target_file_bytes)
    inexact = compaction.inexact_files(besides=small)
    if not small and not inexact:
        return "no small files to compact"
    what = " and ".join([*_counted(small, "small file"), *_counted(inexact, "foreign file")])
    if options.dry_run:
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


def _each_table(
    done: Callable[[argparse.Namespace, Config, TableStorage], str], options: argparse.Namespace, env: Mapping[str, str]
) -> None:
    fleet = load_fleet(options, env)
    if not fleet.storage.kind.is_table:
        raise UsageError(f'storage.mode is "{fleet.storage.mode}": only a table (mode `lake`) has such files')
    with opened_lake(fleet) as lake:
        with lake.table.state():  # raises if there is none yet
            pass
        for number, table in enumerate(lake.tables()):
            echo(f"{'dead letters: ' if number else ''}{done(options, fleet, table)}")


def _vacuumed(options: argparse.Namespace, fleet: Config, lake: TableStorage) -> str:
    from kctl_agent.storage.lake.maintenance.vacuum import remove, unused
    from kctl_agent.storage.limits import readable

    found = unused(lake.table, options.retention_hours)
    if not found:
        return "no files to remove"
    what = f"{number_of(len(found), 'file')} ({readable(sum(file.size for file in found))})"
    if options.dry_run:
        echo("\n".join(file.name for file in found))
        return f"would remove {what}"
    if not options.yes:
        confirm(f"Remove {what} of {lake.identity} for good?")
        # The answer may have taken a day, in which a restored version may need them again.
        still = {file.name for file in unused(lake.table, options.retention_hours)}
        found = [file for file in found if file.name in still]
    params = {"table": str(lake.folder), "retention_hours": options.retention_hours}
    with operation(fleet_log(fleet), "storage vacuum", params) as running:
        running.text = f"{number_of(remove(lake.table, found), 'file')} removed"
    return running.text


COMMANDS = (
    Command(
        "optimize",
        "Compact the small files of a table (mode `lake`) and of its dead letters.",
        (CONFIG, Option(("--dry-run",), "only show what would be compacted", "flag")),
        details="Replaces them with files of about `storage.target_file_bytes`. Rows, stored offsets and older "
        "versions do not change; `kctl storage vacuum` removes the replaced files. Foreign files, written by other "
        "programs than Spark and kctl, are rewritten because their statistics may hide rows from queries. The fleet "
        "may run meanwhile.",
        run=partial(_each_table, _optimized),
    ),
    Command(
        "vacuum",
        "Remove files that a table (mode `lake`) and its dead letters no longer need.",
        (
            CONFIG,
            Option(
                ("--retention-hours",),
                "keep files that were replaced or written since. Default: the table's setting, or else 168",
                "int",
                "N",
            ),
            Option(("--dry-run",), "only print the files", "flag"),
            YES,
        ),
        details="Removes files that no version of the last seven days uses; older versions become unreadable. Shows "
        "them and asks first. Files of a batch in progress stay, however old.",
        run=partial(_each_table, _vacuumed),
    ),
)
