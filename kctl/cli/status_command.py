"""`kctl status`"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from kctl.cli.ask import ask, incomplete
from kctl.cli.options import ConfigOption, Output, OutputOption, config_option
from kctl.cli.output import as_json, as_yaml, whole
from kctl.cli.table import Column, cell, render
from kctl.cli.tables import PROCESS_COLUMNS, causes, duration, mebibytes, told_pause
from kctl.fleets import Fleet, find
from kctl_agent.messages import reducer_method, wire_method

__all__ = ["register"]

_COLUMNS = (
    *PROCESS_COLUMNS,
    Column("rows/s", is_number=True),
    Column("last-error"),
)


def register(app: typer.Typer) -> None:
    app.command("status")(_status)


def _status(
    context: typer.Context,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
    timeout: Annotated[float, typer.Option(min=0.01, metavar="SECONDS", help="In all, per question.")] = 5.0,
) -> None:
    """Show the master and its workers.

    `desired` and `state` are what the supervisor wants and sees of a worker, `doing` what the worker itself says; `rss`
    is the memory of all its processes. Exit code 3 when a worker does not answer, 5 when there is no master.
    """
    fleet = find(config_option(context, config), os.environ)
    supervised = ask(fleet, "status", wire_method("status"), {}, timeout).result["rows"]
    told = ask(fleet, "workers", reducer_method("workers"), {}, timeout)
    rows = _joined(supervised, {row["name"]: row for row in told.result["rows"]})
    master = _master(fleet)
    if output is Output.TABLE:
        typer.echo(f"fleet {cell(fleet.name)}  " + "  ".join(f"{key} {cell(value)}" for key, value in master.items()))
        typer.echo("\n".join([*render(_COLUMNS, [_cells(row) for row in rows]), *_remarks(rows)]))
    else:
        document = {**whole(told), "fleet": fleet.name, "master": master, "rows": rows}
        typer.echo(as_json(document) if output is Output.JSON else as_yaml(document))
    problem = incomplete(told)
    if problem is not None:
        raise problem


def _master(fleet: Fleet) -> dict[str, Any]:
    """What `master.json` tells; nulls when it cannot be read, for the master that answers is there all the same."""
    try:
        about = json.loads((fleet.run_dir / "master.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = {}
    return {key: about.get(key) for key in ("pid", "version", "http_url", "config")}


def _joined(supervised: list[dict[str, Any]], told: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per worker: the supervisor's, and the worker's own answer under `worker`; attached ones have only it."""
    unsupervised = [
        {"name": name, "kind": row.get("kind"), "state": None, "pid": row.get("pid")}
        for name, row in told.items()
        if name not in {each["name"] for each in supervised}
    ]
    return [{**row, "worker": told.get(row["name"])} for row in [*supervised, *unsupervised]]


def _remarks(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What does not fit into the table: warnings, what is paused by whom, and where to read of an ill worker."""
    for row in rows:
        if row.get("warning"):
            yield f"{cell(row['name'])}: {cell(row['warning'])}"
        for scope in row.get("paused") or ():
            yield f"{cell(row['name'])}: {told_pause(scope)}"
        if row["state"] in ("backoff", "fatal"):
            yield f"{cell(row['name'])}: its log is {cell(row.get('log'))}"


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    own = row["worker"] or {}
    rate = own.get("rows_per_second")
    return (
        row["name"],
        row.get("desired"),
        row["state"],
        own.get("state"),
        duration(row.get("since_seconds")),
        row["pid"],
        causes(row),
        duration(row.get("next_try_seconds")),
        mebibytes(row.get("resident_bytes") or own.get("rss_bytes")),
        None if rate is None else f"{rate:.0f}",
        row.get("last_error") or own.get("last_error"),
    )
