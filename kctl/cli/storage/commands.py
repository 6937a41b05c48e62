"""`kctl storage`: pending, failed and dead messages, and tables of batches."""

from __future__ import annotations

from kctl.cli.command import CommandGroup
from kctl.cli.options import ConfigOption, OutputOption, load_fleet
from kctl.cli.output import as_text, echo
from kctl.cli.signature import command
from kctl.cli.storage import dead as dead_letters
from kctl.cli.storage.maintenance import optimize, vacuum
from kctl.cli.storage.migrate import migrate
from kctl.cli.storage.selection import choosing
from kctl.cli.storage.tables import status_document, status_lines, table_document, table_lines
from kctl.cli.storage.waiting import clear, requeue
from kctl.dead_letters.storage import opened, opened_lake


def status(config: ConfigOption = None, output: OutputOption = "table") -> None:
    """Count messages by state; for a table its rows, files and bytes."""
    fleet = load_fleet(config)
    if fleet.storage.kind.is_table:
        with opened_lake(fleet) as lake:
            document = table_document(lake, fleet.kafka.group)
        lines = table_lines(document, fleet.kafka.group)
    else:
        with opened(fleet) as storage:
            document = status_document(storage.identity, storage.stats())
        lines = status_lines(document)
    echo("\n".join(lines) if output == "table" else as_text(document, output))


_DEAD = CommandGroup(
    "dead",
    "Messages that failed too often.",
    (
        choosing("list", dead_letters.list_dead),
        choosing("groups", dead_letters.groups),
        command("show", dead_letters.show_dead),
        choosing("export", dead_letters.export_dead),
        choosing("requeue", dead_letters.requeue),
        choosing("delete", dead_letters.delete),
        choosing("send", dead_letters.send),
    ),
)
COMMAND = CommandGroup(
    "storage",
    "Pending, failed and dead messages; files of a table.",
    (
        command("status", status),
        choosing("requeue", requeue),
        choosing("clear", clear),
        command("optimize", optimize),
        command("vacuum", vacuum),
        command("migrate", migrate),
        _DEAD,
    ),
)
