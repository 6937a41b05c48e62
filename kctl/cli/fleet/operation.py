"""`kctl operation`"""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.cli.fleet.submit import asked, cancel_operation, fleet_of, follow, show
from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.cli.table import clean

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("operation")(_operation)


def _operation(
    context: typer.Context,
    id_: Annotated[str, typer.Argument(metavar="ID", help="As it was printed when the operation was submitted.")],
    config: ConfigOption = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="End it, and show what became of it.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended, and show how it goes.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how far an operation has come.

    Exit code 1 when it has failed, 3 when it may still happen. `--cancel` takes back what can be: after `failed`
    nothing changes any more.
    """
    fleet = fleet_of(context, config)
    if cancel:
        cancel_operation(fleet, id_)
    operation = asked(fleet, id_)
    operation = follow(fleet, operation) if wait or cancel else operation
    if cancel and output is Output.TABLE and operation["state"] == "failed":
        typer.echo(f"operation {id_} has ended: {clean(operation['text'])}")
    else:
        show(operation, output)
