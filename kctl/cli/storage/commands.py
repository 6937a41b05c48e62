"""`kctl storage`: messages that wait, failed or died; list, put back, remove and export them."""

from __future__ import annotations

import typer

from kctl.cli.storage.clear import clear
from kctl.cli.storage.dead import list_dead, show_dead
from kctl.cli.storage.export import export
from kctl.cli.storage.requeue import requeue
from kctl.cli.storage.status import status

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    storage = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Messages that wait, failed or died.")
    storage.command("status")(status)
    storage.command("requeue")(requeue)
    storage.command("clear")(clear)
    storage.command("export")(export)
    dead = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Messages that were tried too often.")
    dead.command("list")(list_dead)
    dead.command("show")(show_dead)
    storage.add_typer(dead, name="dead")
    app.add_typer(storage, name="storage")
