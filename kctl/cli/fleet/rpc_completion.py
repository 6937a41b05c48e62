"""`kctl rpc` as Typer knows it: its line on the help page and its shell completion.

`entry` passes `kctl rpc …` to `rpc`, which parses with argparse, before Typer is imported. A test holds the two to the
same options.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kctl.cli.fleet.tables import TABLES
from kctl.cli.options import ConfigOption, WideOutput

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("rpc")(_rpc)


def _complete() -> list[tuple[str, str]]:
    return [(name, table.question) for name, table in TABLES.items()]


def _rpc(
    _command: Annotated[str, typer.Argument(metavar="COMMAND", autocompletion=_complete)],
    _config: ConfigOption = None,
    _output: Annotated[WideOutput, typer.Option("--output", "-o")] = WideOutput.TABLE,
    _watch: Annotated[str | None, typer.Option("--watch")] = None,
    _timeout: Annotated[float | None, typer.Option("--timeout")] = None,
    _worker: Annotated[str | None, typer.Option("--worker")] = None,
    _fail_above: Annotated[int | None, typer.Option("--fail-above")] = None,
) -> None:
    """Ask a running fleet.

    `kctl rpc --help` lists the commands.
    """
    raise NotImplementedError("kctl rpc is run by kctl.cli.fleet.rpc")
