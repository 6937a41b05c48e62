"""`kctl restart`"""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.cli.fleet.submit import DeadlineOption, WaitOption, carry_out, fleet_of
from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.errors import UsageError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("restart")(_restart)


def _restart(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Workers, sinkers, or `engine`.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="All that run, the engine first; not what is stopped or given up.")
    ] = False,
    rolling: Annotated[
        bool, typer.Option("--rolling", help="One after another, each when the one before has come up.")
    ] = False,
    wait: WaitOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start workers, sinkers or the engine anew, some or all.

    Each finishes its batch, commits and leaves the group first. `--all` leaves out what is stopped or given up
    (`fatal`): `kctl start NAME` starts that. It gives up after 600 s, or `--deadline`.

    \b
    kctl restart worker-0 --wait
    kctl restart worker-0 worker-1 --rolling
    kctl restart --all --rolling
    """
    if bool(names) == everybody:
        raise UsageError("give one or more names, or --all")
    params = {"name": ",".join(names or ()) or None, "all": everybody or None, "rolling": rolling or None}
    carry_out(fleet_of(context, config), "restart", params, output, deadline=deadline, wait=wait)
