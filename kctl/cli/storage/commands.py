"""`kctl storage`: messages that wait, failed or died, and tables that batches go into."""

from __future__ import annotations

import typer

from kctl.cli.storage import dead as dead_letters
from kctl.cli.storage.clear import clear
from kctl.cli.storage.export import export
from kctl.cli.storage.optimize import optimize
from kctl.cli.storage.requeue import requeue
from kctl.cli.storage.status import status
from kctl.cli.storage.vacuum import vacuum

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    storage = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help="Messages that wait, failed or died; files of a table."
    )
    storage.command("status")(status)
    storage.command("requeue")(requeue)
    storage.command("clear")(clear)
    storage.command("export")(export)
    storage.command("optimize")(optimize)
    storage.command("vacuum")(vacuum)
    dead = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Messages that were tried too often.")
    dead.command("list")(dead_letters.list_dead)
    dead.command("groups")(dead_letters.groups)
    dead.command("show")(dead_letters.show_dead)
    dead.command("export")(dead_letters.export_dead)
    dead.command("requeue")(dead_letters.requeue)
    dead.command("delete")(dead_letters.delete)
    storage.add_typer(dead, name="dead")
    app.add_typer(storage, name="storage")
