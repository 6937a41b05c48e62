"""`kctl storage`: the state of a storage, its pending messages, and the tree of all its commands."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kctl.audit import fleet_log, operation
from kctl.cli.command import CONFIG, OUTPUT, YES, Command, CommandGroup, Option
from kctl.cli.confirm import confirm
from kctl.cli.options import load_fleet
from kctl.cli.output import as_text, echo
from kctl.cli.storage import dead, maintenance, migrate
from kctl.cli.storage.selection import SELECTION, selection
from kctl.cli.storage.tables import status_document, status_lines, table_document, table_lines
from kctl.dead_letters.storage import opened, opened_lake
from kctl.errors import UsageError
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.selection import Selection

if TYPE_CHECKING:
    from kctl.config.sections import Config


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
    echo(_cleared(load_fleet(options, env), selection(options), yes=options.yes))


def _cleared(fleet: Config, selection: Selection, *, yes: bool) -> str:
    if fleet.storage.kind.is_table:
        raise UsageError('storage.mode is "lake": rows go into a table, which has no queue')
    with opened(fleet) as storage:
        if not yes:
            chosen = selection.of_blocks()
            partitions = [p for p in storage.stats().partitions if chosen.takes_partition(p.topic, p.partition)]
            count = sum(p.pending + p.delayed for p in partitions)
            if count == 0:
                return "no messages wait"
            confirm(f"Remove {number_of(count, 'message')} (waiting) of {storage.identity} for good?")
        with operation(fleet_log(fleet), "storage clear", {"what": "pending"} | selection.named) as running:
            running.text = f"{number_of(storage.clear(selection), 'message')} removed"
    return running.text


COMMAND = CommandGroup(
    "storage",
    "Pending, failed and dead messages; files of a table.",
    (
        Command(
            "status", "Count messages by state; for a table its rows, files and bytes.", (CONFIG, OUTPUT), run=_status
        ),
        Command(
            "requeue",
            "Make delayed messages and expired leases available at once; with --older-than also leases that old.",
            (
                CONFIG,
                Option(
                    ("--cancel",),
                    "for a table: requeued messages that no worker has taken yet are dead letters again",
                    "flag",
                ),
                *SELECTION,
            ),
            "kctl storage requeue --topic orders --partition 3\n"
            "kctl storage requeue --older-than 600\n"
            "kctl storage requeue --cancel",
            "For dead letters use `kctl storage dead requeue`.",
            run=_requeue,
        ),
        Command(
            "clear",
            "Delete pending and delayed messages, but not leased ones.",
            (CONFIG, YES, *SELECTION),
            details="Shows how many there are and asks first. Stored offsets stay, so the messages are not read from "
            "Kafka again. For dead letters use `kctl storage dead delete`.",
            run=_clear,
        ),
        *maintenance.COMMANDS,
        migrate.COMMAND,
        dead.COMMAND,
    ),
)
