"""`kctl scale`"""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.cli.fleet.submit import DeadlineOption, WaitOption, carry_out, fleet_of
from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.errors import UsageError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("scale")(_scale)


def _scale(
    context: typer.Context,
    counts: Annotated[list[str], typer.Argument(metavar="workers=N|sinkers=N", help="How many.")],
    config: ConfigOption = None,
    wait: WaitOption = False,
    deadline: DeadlineOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run more or fewer workers or sinkers.

    Until the fleet is started again, or reloaded. It gives up after 600 s, or `--deadline`.

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
