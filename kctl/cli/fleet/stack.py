"""`kctl stack`"""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.cli.fleet.submit import fleet_of, follow, show, submit
from kctl.cli.options import ConfigOption, Output, OutputOption

__all__ = ["register"]

_NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A worker, a sinker, `engine`, or an attached application.")
]


def register(app: typer.Typer) -> None:
    app.command("stack")(_stack)


def _stack(
    context: typer.Context, name: _NameArgument, config: ConfigOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Show the stacks of all threads of a process and of its JVM."""
    fleet = fleet_of(context, config)
    operation = follow(fleet, submit(fleet, "stack", {"name": name}))
    show(operation, output)
    if output is Output.TABLE:
        for thread in operation["result"].get("threads", ()):
            typer.echo(f"\n{thread['thread']}\n{thread['stack'].rstrip()}")
        for jvm in operation["result"].get("jvms", ()):
            typer.echo(f"\nJVM, pid {jvm['pid']}\n{jvm.get('stack') or jvm.get('error')}")
