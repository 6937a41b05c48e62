"""What a worker reports of itself and what its supervisor sees, in one row: for RPC, HTTP and the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kctl.master.snapshot import Reduced, WorkerStatus
from kctl.reduce.rows import WorkerRow
from kctl.reduce.workers import Workers

__all__ = ["with_supervisor"]


def with_supervisor(reduced: Reduced[Workers], statuses: Iterable[WorkerStatus]) -> Reduced[Workers]:
    """The result of `workers` with the supervisor's view; None where an agent is only attached.

    A supervised worker whose agent is silent has a row too: its name, kind and pid, and None for what only it could
    report. Pure.
    """
    rows = {row.name: row for row in reduced.result.rows}
    for status in statuses:
        silent = WorkerRow(status.name, status.kind, pid=status.pid)
        rows[status.name] = replace(rows.get(status.name, silent), supervisor=status)
    return replace(reduced, result=Workers(tuple(rows[name] for name in sorted(rows))))
