"""`kctl log-level`"""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.cli.fleet.submit import carry_out, fleet_of
from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.cli.table import clean
from kctl.errors import UsageError

__all__ = ["register"]

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def register(app: typer.Typer) -> None:
    app.command("log-level")(_log_level)


def _log_level(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A worker, a sinker, `engine`, or `master`.")],
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR.")],
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change how much a process logs, until it ends.

    \b
    kctl log-level worker-0 DEBUG
    """
    if level.upper() not in _LEVELS:
        raise UsageError(f"`{clean(level)}` is no level: use {', '.join(_LEVELS)}")
    carry_out(fleet_of(context, config), "log_level", {"name": name, "level": level}, output, deadline=None)
