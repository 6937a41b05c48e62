"""`kctl rpc` as Typer knows it: its help page and its shell completion.

`entry` passes every other `kctl rpc …` to `rpc`, which parses with argparse, before Typer is imported. A test holds the
two to the same options.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.cli.fleet.tables import TABLES
from kctl.cli.fleet.threshold import THRESHOLDS
from kctl.cli.options import ConfigOption, WideOutput

__all__ = ["register"]

_COMPARED = ", ".join(f"{what} ({name})" for name, (what, _) in THRESHOLDS.items())
_EXAMPLES = """\
kctl rpc kafka_lag                              how many messages wait
kctl rpc offset_checker --watch                 per partition, every 2 seconds
kctl rpc kafka_lag --fail-above 10000           exit 4 if more than that wait: for cron and checks
kctl rpc offset_checker -o json | jq '.rows[] | select(.worker == null)'
kctl rpc workers --worker worker-0              one worker only
kctl rpc workers -o wide                        every column, no error cut
"""
_EXIT_CODES = """\
Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 a worker did not answer or a value is not known, 4 above --fail-above,
5 no master to ask.
"""


def register(app: typer.Typer) -> None:
    commands = "\n".join(f"{name:<18}{table.question}" for name, table in TABLES.items())
    app.command("rpc", help=f"Ask a running fleet.\n\n\b\n{commands}\n\n\b\n{_EXAMPLES}", epilog=_EXIT_CODES)(_rpc)


def _complete() -> list[tuple[str, str]]:
    return [(name, table.question) for name, table in TABLES.items()]


def _rpc(
    _command: Annotated[str, typer.Argument(metavar="COMMAND", autocompletion=_complete)],
    _config: ConfigOption = None,
    _output: Annotated[
        WideOutput, typer.Option("--output", "-o", help="How the result is printed.")
    ] = WideOutput.TABLE,
    _watch: Annotated[str | None, typer.Option("--watch", metavar="[SECONDS]", help="Again every 2 seconds.")] = None,
    _timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="In all.")] = 5.0,
    _worker: Annotated[str | None, typer.Option("--worker", metavar="NAME", help="Ask only this one.")] = None,
    _fail_above: Annotated[
        int | None, typer.Option("--fail-above", metavar="N", help=f"Exit 4 if a value is higher: {_COMPARED}.")
    ] = None,
) -> None:
    raise NotImplementedError("kctl rpc is run by kctl.cli.fleet.rpc")
