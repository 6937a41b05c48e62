"""`kctl storage`: the commands except `migrate` and `dead`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kctl.audit import fleet_log, operation
from kctl.cli.command import CONFIG, OUTPUT, YES, Command, CommandGroup, Option
from kctl.cli.options import load_fleet
from kctl.cli.output import as_text, confirm, echo
from kctl.cli.storage import dead, migrate
from kctl.cli.storage.dead import OF_PENDING, selection
from kctl.cli.storage.tables import status_document, status_lines, table_document, table_lines
from kctl.dead_letters.storage import opened, opened_lake
from kctl.errors import UsageError
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.selection import Selection

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


_MAINTENANCE = (
    Command(
        "optimize",
        "Compact the small files of a table (mode `lake`) and of its dead letters.",
        (CONFIG, Option(("--dry-run",), "only show what would be compacted", "flag")),
        details="Replaces them with files of about `storage.target_file_bytes`. Rows, stored offsets and older "
        "versions do not change; `kctl storage vacuum` removes the replaced files. Also rewrites foreign files: "
        "programs other than Spark and kctl wrote them, and their statistics may hide rows from queries. The fleet may "
        "run meanwhile.",
        run=partial(_each_table, _optimized),
    ),
    Command(
        "vacuum",
        "Remove files that a table (mode `lake`) and its dead letters no longer need.",
        (
            CONFIG,
            Option(
                ("--retention-hours",),
                "keep files that were replaced or written in the last N hours. Default: the table's setting, or else "
                "168",
                "int",
                "N",
            ),
            Option(("--dry-run",), "only print the files", "flag"),
            YES,
        ),
        details="Removes files that no version within the retention time uses. Older versions become unreadable. Shows "
        "the number and size of the files, and asks first. Files of a batch in progress stay, however old.",
        run=partial(_each_table, _vacuumed),
    ),
)


def _status(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    fleet = load_fleet(options, env)
    if fleet.storage.kind.is_table:
        with opened_lake(fleet) as lake:
            document = table_document(lake, fleet.kafka.group)
        lines = table_lines(document, fleet.kafka.group)
    else:
        with opened(fleet) as storage:
            document = status_document(storage.identity, storage.stats())
        lines = status_lines(document)
    echo("\n".join(lines) if options.output == "table" else as_text(document, options.output))


def _requeue(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    chosen = selection(options)
    if options.cancel and chosen.named:
        raise UsageError("--cancel applies to all requeued messages: leave out the other options")
    fleet = load_fleet(options, env)
    echo(_cancelled(fleet) if options.cancel else _unstuck(fleet, chosen))


def _unstuck(fleet: Config, selection: Selection) -> str:
    if fleet.storage.kind.is_table:
        raise UsageError('storage.mode is "lake": rows go into a table, which has no queue')
    params = {"what": "stuck"} | selection.named
    with opened(fleet) as storage, operation(fleet_log(fleet), "storage requeue", params) as running:
        running.text = f"{number_of(storage.requeue_stuck(selection), 'message')} requeued"
    return running.text


def _cancelled(fleet: Config) -> str:
    if not fleet.storage.kind.is_table:
        raise UsageError(
            f'storage.mode is "{fleet.storage.mode}": only a table (mode `lake`) has requeued messages that no worker '
            "has taken yet"
        )
    with opened_lake(fleet) as lake, operation(fleet_log(fleet), "storage requeue", {"what": "cancel"}) as running:
        from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable

        count = DeadLetterTable(lake, fleet.kafka.group).cancel_requeued()
        were = "was requeued is a dead letter" if count == 1 else "were requeued are dead letters"
        running.text = f"{number_of(count, 'message')} that {were} again"
    return running.text


def _clear(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    fleet, chosen = load_fleet(options, env), selection(options)
    if fleet.storage.kind.is_table:
        raise UsageError('storage.mode is "lake": rows go into a table, which has no queue')
    with opened(fleet) as storage:
        if not options.yes:
            blocks = chosen.of_blocks()
            partitions = [p for p in storage.stats().partitions if blocks.takes_partition(p.topic, p.partition)]
            count = sum(p.pending + p.delayed for p in partitions)
            if count == 0:
                echo("no messages wait")
                return
            confirm(f"Remove {number_of(count, 'message')} (waiting) of {storage.identity} for good?")
        with operation(fleet_log(fleet), "storage clear", {"what": "pending"} | chosen.named) as running:
            running.text = f"{number_of(storage.clear(chosen), 'message')} removed"
    echo(running.text)


_LEASED = next(each for each in OF_PENDING if each.parameter == "older_than_seconds")._replace(
    help="also messages leased at least this long ago"
)
COMMAND = CommandGroup(
    "storage",
    "Pending, failed and dead messages; files of a table.",
    (
        Command(
            "status", "Count messages by state; for a table its rows, files and bytes.", (CONFIG, OUTPUT), run=_status
        ),
        Command(
            "requeue",
            "Make delayed messages, and messages with an expired lease, available at once.",
            (
                CONFIG,
                Option(
                    ("--cancel",),
                    "for a table: turn requeued messages that are not in the table yet back into dead letters",
                    "flag",
                ),
                *(_LEASED if each.parameter == "older_than_seconds" else each for each in OF_PENDING),
            ),
            "kctl storage requeue --topic orders --partition 3\n"
            "kctl storage requeue --older-than 600\n"
            "kctl storage requeue --cancel",
            "A table (mode `lake`) supports only --cancel. For dead letters, use `kctl storage dead requeue`.",
            run=_requeue,
        ),
        Command(
            "clear",
            "Delete pending and delayed messages, but not leased ones.",
            (CONFIG, YES, *OF_PENDING),
            details="Shows how many there are and asks first. Stored offsets stay, so the messages are not read from "
            "Kafka again. For dead letters, use `kctl storage dead delete`.",
            run=_clear,
        ),
        *_MAINTENANCE,
        migrate.COMMAND,
        dead.COMMAND,
    ),
)
