"""`kctl drain`"""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.cli.fleet.submit import DeadlineOption, WaitOption, carry_out, fleet_of
from kctl.cli.options import ConfigOption, Output, OutputOption

__all__ = ["register"]

_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A worker or sinker; not the engine.")]


def register(app: typer.Typer) -> None:
    app.command("drain")(_drain)


def _drain(
    context: typer.Context,
    name: _NameArgument,
    config: ConfigOption = None,
    wait: WaitOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let a worker or sinker finish its work, commit and leave.

    Nothing is killed or abandoned: if it takes longer than the deadline (600 s), it goes on as before. A drained
    one stays stopped until `kctl start NAME`.
    """
    carry_out(fleet_of(context, config), "drain", {"name": name}, output, deadline=deadline, wait=wait)
