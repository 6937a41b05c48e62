"""`kctl operations`"""

from __future__ import annotations

import time
from typing import Any

import typer

from kctl.cli.fleet.ask import ask
from kctl.cli.fleet.submit import fleet_of
from kctl.cli.fleet.tables import duration
from kctl.cli.options import ConfigOption, Output, OutputOption
from kctl.cli.output import as_json, as_yaml
from kctl.cli.table import Column, render
from kctl_agent.messages import wire_method

__all__ = ["register"]

_COLUMNS = (
    Column("id", is_number=True),
    Column("operation"),
    Column("by"),
    Column("via"),
    Column("at"),
    Column("took", is_number=True),
    Column("state"),
    Column("what-happened"),
)
_TIMEOUT_SECONDS = 10.0


def register(app: typer.Typer) -> None:
    app.command("operations")(_operations)


def _operations(context: typer.Context, config: ConfigOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the last operations: by whom, how, and their outcomes."""
    result = ask(fleet_of(context, config), "operations", wire_method("operations"), {}, _TIMEOUT_SECONDS).result
    if output is Output.TABLE:
        typer.echo("\n".join(render(_COLUMNS, [_cells(operation) for operation in result["rows"]])))
    else:
        typer.echo(as_json(result) if output is Output.JSON else as_yaml(result))


def _cells(operation: dict[str, Any]) -> tuple[object, ...]:
    given = (
        key if value is True else f"{key}={value}" for key, value in operation["params"].items() if value is not False
    )
    words = " ".join([operation["operation"], *given])
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(operation["started_at"]))
    ended = operation["ended_at"]
    took = None if ended is None else duration(ended - operation["started_at"])
    return operation["id"], words, operation["by"], operation["via"], at, took, operation["state"], operation["text"]
