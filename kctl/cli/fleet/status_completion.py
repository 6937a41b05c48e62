"""`kctl status` as Typer knows it: its help page and its shell completion.

`entry` passes every other `kctl status …` to `status`, which parses with argparse, before Typer is imported. A test
holds the two to the same options.
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
    _fail_on: Annotated[FailOn, typer.Option("--fail-on", help="Exit 1 from this verdict on.")] = FailOn.DEGRADED,
    _timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="Per question.")] = 5.0,
) -> None:
    """Show how a fleet is doing, its lag and its workers.

    The first line is the verdict with its reason: ok, degraded, unknown or failing; it is that of the page and
    /readyz. `desired` and `state` are what the supervisor wants and sees of a worker, `doing` is what the worker
    reports; `rss` is the memory of all its processes.

    Exit codes: 0 ok, 1 degraded, failing or unknown (with --fail-on failing not for degraded), 3 a worker did not
    answer just now, 5 no master to ask.
    """
    raise NotImplementedError("kctl status is run by kctl.cli.fleet.status")
