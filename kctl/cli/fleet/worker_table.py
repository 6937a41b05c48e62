"""The process table of `kctl status`, `kctl rpc workers` and `kctl top`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING

from kctl.cli.table import Column, duration, render
from kctl.fields import host_and_name

if TYPE_CHECKING:
    from kctl.rows.workers import WorkerRow, WorkerStatus

RPC = ("name", "state", "doing", "since", "pid", "restarts", "rss", "rows/s", "last-error")
"""Fits into 80 columns except for the error."""
RPC_WIDE = ("name", "desired", "state", "doing", "since", "pid", "causes", "next-try", "rss", "*", "last-error")
"""`*`: every column declared with a field of `WorkerReply`."""
STATUS = ("name", "desired", "state", "doing", "since", "pid", "causes", "next-try", "rss", "rows/s", "last-error")
TOP = ("name", "state", "doing", "since", "causes", "rss", "rows/s", "last-error")


def worker_table(rows: Iterable[WorkerRow], columns: Sequence[str]) -> list[str]:
    known = _COLUMNS | _declared()
    names = [each for name in columns for each in (_declared() if name == "*" else (name,))]
    rows = list(rows)
    if any("/" in row.name for row in rows):
        names = ["host", *names]
    chosen = [known[name] for name in names]
    cells = [[cell_of(row) for _, cell_of in chosen] for row in rows]
    return render([column for column, _ in chosen], cells)


@cache
def _declared() -> dict[str, tuple[Column, Callable[[WorkerRow], object]]]:
    from kctl_agent.replies.workers import WorkerReply  # the other commands do without

    marked = [each for each in fields(WorkerReply) if "column" in each.metadata]
    return {
        each.metadata["column"]: (
            Column(each.metadata["column"], str(each.type).startswith(("int", "float"))),
            _field(each.name, each.metadata.get("digits")),
        )
        for each in marked
    }


def _field(name: str, digits: int | None) -> Callable[[WorkerRow], object]:
    return lambda row: value if (value := getattr(row, name)) is None or digits is None else f"{value:.{digits}f}"


def _of_supervisor(cell_of: Callable[[WorkerStatus], object]) -> Callable[[WorkerRow], object]:
    return lambda row: None if row.supervisor is None else cell_of(row.supervisor)


def _since(row: WorkerRow) -> str | None:
    return duration(row.state_seconds if row.supervisor is None else row.supervisor.since_seconds)


def _causes(supervisor: WorkerStatus) -> str:
    # `2 signal, 1 memory`, or `0`. Not `signal 2`, which would read as SIGINT.
    return ", ".join(f"{count} {cause}" for cause, count in supervisor.restarts_by_cause.items() if count) or "0"


def _resident(row: WorkerRow) -> str | None:
    # The supervisor's number includes child processes, and the worker's own does not.
    count = (None if row.supervisor is None else row.supervisor.resident_bytes) or row.rss_bytes
    return None if count is None else f"{count / 1048576:.0f}MiB"


def _last_error(row: WorkerRow) -> str | None:
    # The worker's own error is newer. The supervisor's is why the last process ended.
    return row.last_error or (None if row.supervisor is None else row.supervisor.last_error)


_COLUMNS: dict[str, tuple[Column, Callable[[WorkerRow], object]]] = {
    "host": (Column("host"), lambda row: host_and_name(row.name)[0]),
    "name": (Column("name"), lambda row: host_and_name(row.name)[1]),
    "desired": (Column("desired"), _of_supervisor(lambda supervisor: supervisor.desired)),
    "state": (Column("state"), _of_supervisor(lambda supervisor: supervisor.state)),
    "doing": (Column("doing"), lambda row: row.state),  # reported by the process itself
    "since": (Column("since", is_number=True), _since),
    "pid": (Column("pid", is_number=True), lambda row: row.pid if row.supervisor is None else row.supervisor.pid),
    "restarts": (Column("restarts"), _of_supervisor(lambda supervisor: str(supervisor.restarts))),
    "causes": (Column("restarts"), _of_supervisor(_causes)),
    "next-try": (
        Column("next-try", is_number=True),
        _of_supervisor(lambda supervisor: duration(supervisor.next_try_seconds)),
    ),
    "rss": (Column("rss", is_number=True), _resident),
    "last-error": (Column("last-error"), _last_error),
}
