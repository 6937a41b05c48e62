"""`kctl status`: the master, its workers, and how fresh the brokers' offsets are. Without Typer, as `rpc`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl import fleets
from kctl.cli.fleet.ask import ask, lacks
from kctl.cli.fleet.tables import PROCESS_COLUMNS, causes, mebibytes, pause_text
from kctl.cli.output import OUTPUTS, as_json, as_yaml, whole
from kctl.cli.parsing import Parser, seconds
from kctl.cli.table import Column, cell, render
from kctl.cli.times import duration
from kctl.errors import IncompleteAnswer, UsageError
from kctl_agent.messages import reducer_method, wire_method

if TYPE_CHECKING:
    from kctl_agent.messages import Reply

__all__ = ["parser", "run"]

_TIMEOUT_SECONDS = 5.0
_COLUMNS = (
    *PROCESS_COLUMNS,
    Column("rows/s", is_number=True),
    Column("last-error"),
)
_OF_BROKERS = "the brokers' "
_SUMMARY = """\
Show the master and its workers.

`desired` and `state` are what the supervisor wants and sees of a worker, `doing` is what the worker reports; `rss` is
the memory of all its processes. Exit code 3 when a worker does not answer or the brokers' offsets are stale, 5 when
there is no master.
"""


def parser() -> argparse.ArgumentParser:
    """The options of `kctl status`; shell completion knows the same."""
    status = Parser(
        prog="kctl status",
        usage="kctl status [options]",
        description=_SUMMARY,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=100),
        allow_abbrev=False,
        add_help=False,
    )
    option = status.add_argument
    option("-o", "--output", choices=OUTPUTS, default="table", help="how the result is printed (default: table)")
    option("--timeout", type=seconds, default=_TIMEOUT_SECONDS, metavar="SECONDS", help="per question (default: 5)")
    option("-c", "--config", type=Path, metavar="FILE", help="the fleet's kctl.toml; see `kctl --help`")
    option("-h", "--help", action="store_true", help="show this")
    return status


def run(words: Sequence[str], config: Path | None, env: Mapping[str, str]) -> int:
    """Run `kctl status` with the words after it; `config` is a `-c` that stood before it.

    Raises:
        KctlError, AgentError: with the exit code of each.
    """
    options, rest = parser().parse_known_args(words)
    if options.help:
        sys.stdout.write(parser().format_help())
        return 0
    if rest:
        raise UsageError(f"kctl status takes no {cell(rest[0])}; see `kctl status --help`")
    fleet = fleets.find(options.config or config, env)
    supervised = ask(fleet, "status", wire_method("status"), {}, options.timeout)
    reported = ask(fleet, "workers", reducer_method("workers"), {}, options.timeout)
    sys.stdout.write(f"{_text(fleet, supervised, reported, options.output)}\n")
    problems = [*lacks(reported), *lacks(supervised)]
    if problems:
        raise IncompleteAnswer("; ".join(problems))
    return 0


def _text(fleet: fleets.Fleet, supervised: Reply, reported: Reply, output: str) -> str:
    rows = _joined(supervised.result["rows"], {row["name"]: row for row in reported.result["rows"]})
    master, brokers = _master(fleet), supervised.result.get("brokers")
    if output == "table":
        head = f"fleet {cell(fleet.name)}  " + "  ".join(f"{key} {cell(value)}" for key, value in master.items())
        table = render(_COLUMNS, [_cells(row) for row in rows])
        return "\n".join(
            [
                head,
                *(f"brokers: {each.removeprefix(_OF_BROKERS)}" for each in lacks(supervised)),
                *table,
                *_remarks(rows),
            ]
        )
    answer = whole(reported)
    answer["complete"] = reported.complete and supervised.complete
    answer["failed"] = [*answer["failed"], *(failure.to_json() for failure in supervised.failed)]
    document = {**answer, "fleet": fleet.name, "master": master, "brokers": brokers, "rows": rows}
    return as_json(document) if output == "json" else as_yaml(document)


def _master(fleet: fleets.Fleet) -> dict[str, Any]:
    """What `master.json` has; nulls when it cannot be read, for the master that answers is there all the same."""
    try:
        about = json.loads((fleet.run_dir / "master.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = {}
    return {key: about.get(key) for key in ("pid", "version", "http_url", "config")}


def _joined(supervised: list[dict[str, Any]], reported: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per worker: the supervisor's, and the worker's own answer under `worker`; attached ones have only it."""
    unsupervised = [
        {"name": name, "kind": row.get("kind"), "state": None, "pid": row.get("pid")}
        for name, row in reported.items()
        if name not in {each["name"] for each in supervised}
    ]
    return [{**row, "worker": reported.get(row["name"])} for row in [*supervised, *unsupervised]]


def _remarks(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What does not fit into the table: warnings, pauses with their callers, and where to read of an unhealthy
    worker."""
    for row in rows:
        if row.get("warning"):
            yield f"{cell(row['name'])}: {cell(row['warning'])}"
        for scope in row.get("paused") or ():
            yield f"{cell(row['name'])}: {pause_text(scope)}"
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
