"""`kctl restart`"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kctl.cli.confirm import confirmed
from kctl.cli.fleet.submit import DeadlineOption, WaitOption, carry_out, fleet_of, show, submit
from kctl.cli.options import ConfigOption, Output, OutputOption, YesOption
from kctl.cli.table import clean
from kctl.errors import UsageError
from kctl_agent.paths import ENGINE_NAME

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
        bool, typer.Option("--all", help="All but what was stopped; the engine only if its settings have changed.")
    ] = False,
    rolling: Annotated[
        bool, typer.Option("--rolling", help="One after another, each when the one before has come up.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which, and whether the engine is among them.")
    ] = False,
    yes: YesOption = False,
    wait: WaitOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start workers, sinkers or the engine anew, some or all.

    Each finishes its batch, commits and leaves the group first. `--all` begins with what was given up (`fatal`) and
    leaves out what was stopped: `kctl start NAME`. While the engine is restarted, which takes about 5 s, nobody reads:
    `--all` does it only where its JVM needs other settings, and on a terminal it is asked for. Gives up after 600 s, or
    `--deadline`.

    \b
    kctl restart worker-0 --wait
    kctl restart worker-0 worker-1 --rolling
    kctl restart --all --rolling
    """
    if bool(names) == everybody:
        raise UsageError("give one or more names, or --all")
    params: dict[str, Any] = {"name": ",".join(names or ()) or None, "all": everybody or None}
    fleet = fleet_of(context, config)
    if dry_run or everybody or ENGINE_NAME in (names or ()):
        plan = submit(fleet, "restart", {**params, "dry_run": True})
        if dry_run or plan["state"] != "done":
            show(plan, output)
            return
        if plan["result"]["engine"]:
            _agree(clean(plan["text"]), is_asked=not yes and sys.stdin.isatty())
    carry_out(fleet, "restart", {**params, "rolling": rolling or None}, output, deadline=deadline, wait=wait)


def _agree(text: str, *, is_asked: bool) -> None:
    sys.stderr.write(f"{text}\n")
    if is_asked and not confirmed("Do it?"):
        raise UsageError("nothing was changed")
