"""`kctl status` as Typer knows it: its line on the help page and its shell completion.

`entry` passes `kctl status …` to `status`, which parses with argparse, before Typer is imported. A test holds the two
to the same options.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kctl.cli.options import ConfigOption, Output, OutputOption

__all__ = ["register"]


class FailOn(StrEnum):
    DEGRADED = "degraded"
    FAILING = "failing"


def register(app: typer.Typer) -> None:
    app.command("status")(_status)


def _status(
    _config: ConfigOption = None,
    _output: OutputOption = Output.TABLE,
    _fail_on: Annotated[FailOn, typer.Option("--fail-on")] = FailOn.DEGRADED,
    _timeout: Annotated[float | None, typer.Option("--timeout")] = None,
) -> None:
    """Show how a fleet is doing, its lag and its workers."""
    raise NotImplementedError("kctl status is run by kctl.cli.fleet.status")
