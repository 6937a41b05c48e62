"""`kctl storage`: messages that wait, failed or died, and tables that batches go into."""

from __future__ import annotations

import typer

from kctl.cli.storage.clear import clear
from kctl.cli.storage.dead import list_dead, show_dead
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
    dead.command("list")(list_dead)
    dead.command("show")(show_dead)
    storage.add_typer(dead, name="dead")
    app.add_typer(storage, name="storage")
