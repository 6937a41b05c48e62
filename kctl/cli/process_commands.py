"""`kctl restart`, `kctl drain`, `kctl scale`, `kctl reload`, `kctl log-level`, `kctl stack`"""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.cli.order import DeadlineOption, WaitOption, carry_out, fleet_of, follow, give, show
from kctl.cli.table import clean
from kctl.errors import UsageError

__all__ = [
    "register_drain",
    "register_log_level",
    "register_reload",
    "register_restart",
    "register_scale",
    "register_stack",
]

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A worker or sinker.")]


def register_restart(app: typer.Typer) -> None:
    app.command("restart")(_restart)


def register_drain(app: typer.Typer) -> None:
    app.command("drain")(_drain)


def register_scale(app: typer.Typer) -> None:
    app.command("scale")(_scale)


def register_reload(app: typer.Typer) -> None:
    app.command("reload")(_reload)


def register_log_level(app: typer.Typer) -> None:
    app.command("log-level")(_log_level)


def register_stack(app: typer.Typer) -> None:
    app.command("stack")(_stack)


def _restart(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Workers or sinkers.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    everybody: Annotated[bool, typer.Option("--all", help="All workers and sinkers.")] = False,
    rolling: Annotated[
        bool, typer.Option("--rolling", help="One after another, each when the one before has come up.")
    ] = False,
    wait: WaitOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start workers or sinkers anew, some or all.

    Each finishes its batch, commits and leaves the group first.

    \b
    kctl restart worker-0 --wait
    kctl restart worker-0 worker-1 --rolling
    kctl restart --all --rolling
    """
    if bool(names) == everybody:
        raise UsageError("say which: one or more names, or --all")
    params = {"name": ",".join(names or ()) or None, "all": everybody or None, "rolling": rolling or None}
    carry_out(fleet_of(context, config), "restart", params, output, deadline=deadline, wait=wait)


def _drain(
    context: typer.Context,
    name: _NameArgument,
    config: ConfigOption = None,
    wait: WaitOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let a worker or sinker finish its work, commit and leave.

    Nothing is killed or abandoned: if it takes longer than the deadline (10 minutes), it goes on as before. A drained
    one stays stopped until `kctl start NAME`.
    """
    carry_out(fleet_of(context, config), "drain", {"name": name}, output, deadline=deadline, wait=wait)


def _scale(
    context: typer.Context,
    counts: Annotated[list[str], typer.Argument(metavar="workers=N|sinkers=N", help="How many.")],
    config: ConfigOption = None,
    wait: WaitOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run more or fewer workers or sinkers.

    Until the fleet is started again, or reloaded.

    \b
    kctl scale workers=4 sinkers=2 --wait
    """
    params: dict[str, int] = {}
    for count in counts:
        kind, _, number = count.partition("=")
        if kind not in ("workers", "sinkers") or not number.isdecimal():
            raise UsageError(f"`{count}` is neither workers=N nor sinkers=N")
        params[kind] = int(number)
    carry_out(fleet_of(context, config), "scale", params, output, deadline=deadline, wait=wait)


def _reload(context: typer.Context, config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """Read the configuration again.

    Applies what can be applied, and names what needs a restart of the processes or of the fleet. A file that cannot be
    used changes nothing. SIGHUP to the master is the same order.
    """
    carry_out(fleet_of(context, config), "reload", {}, output, deadline=None)


def _log_level(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A worker, a sinker, or `master`.")],
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR.")],
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change how much a process logs, until it ends."""
    if level.upper() not in _LEVELS:
        raise UsageError(f"`{clean(level)}` is no level: use {', '.join(_LEVELS)}")
    carry_out(fleet_of(context, config), "log_level", {"name": name, "level": level}, output, deadline=None)


def _stack(
    context: typer.Context, name: _NameArgument, config: ConfigOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show the stacks of all threads of a process and of its JVM."""
    fleet = fleet_of(context, config)
    order = follow(fleet, give(fleet, "stack", {"name": name}))
    show(order, output)
    if output is Output.TABLE:
        for thread in order["result"].get("threads", ()):
            typer.echo(f"\n{thread['thread']}\n{thread['stack'].rstrip()}")
        for jvm in order["result"].get("jvms", ()):
            typer.echo(f"\nJVM, pid {jvm['pid']}\n{jvm.get('stack') or jvm.get('error')}")
