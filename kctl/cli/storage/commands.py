"""`kctl storage`: messages that wait, failed or died, and tables that batches go into."""

from __future__ import annotations

from kctl.cli.command import CommandGroup
from kctl.cli.signature import command
from kctl.cli.storage import dead as dead_letters
from kctl.cli.storage.maintenance import optimize, vacuum
from kctl.cli.storage.status import status
from kctl.cli.storage.waiting import clear, requeue

_DEAD = CommandGroup(
    "dead",
    "Messages that were tried too often.",
    (
        command("list", dead_letters.list_dead),
        command("groups", dead_letters.groups),
        command("show", dead_letters.show_dead),
        command("export", dead_letters.export_dead),
        command("requeue", dead_letters.requeue),
        command("delete", dead_letters.delete),
        command("send", dead_letters.send),
    ),
)
COMMAND = CommandGroup(
    "storage",
    "Messages that wait, failed or died; files of a table.",
    (
        command("status", status),
        command("requeue", requeue),
        command("clear", clear),
        command("optimize", optimize),
        command("vacuum", vacuum),
        _DEAD,
    ),
)
