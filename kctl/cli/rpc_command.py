"""`kctl rpc` for Typer's help page and for shell completion. It is run by `rpc`, without Typer."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kctl.cli import rpc
from kctl.cli.options import config_option
from kctl.cli.tables import TABLES

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command(
        "rpc", add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
    )(_rpc)


def _complete(incomplete: str) -> list[tuple[str, str]]:
    if incomplete.startswith("-"):
        actions = rpc.parser()._actions  # noqa: SLF001 - argparse has no public list of its options
        return [(max(each.option_strings, key=len), each.help or "") for each in actions if each.option_strings]
    return [(name, table.question) for name, table in TABLES.items()]


def _rpc(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND", autocompletion=_complete)] = None,
) -> int:
    """Ask a running fleet.

    `kctl rpc --help` lists the commands.
    """
    return rpc.run(words or [], config_option(context, None), os.environ)
