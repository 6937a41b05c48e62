"""What a worker says of itself and what its supervisor says of it, in one row: for RPC, HTTP and the command line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kctl.master.snapshot import Reduced, WorkerStatus
from kctl_agent.wire import JsonObject

__all__ = ["with_supervisor"]

_ONLY_IT_COULD_TELL: JsonObject = {
    "state": None,
    "state_seconds": None,
    "uptime_seconds": None,
    "rss_bytes": None,
    "query_id": None,
    "batch_id": None,
    "last_batch_seconds": None,
    "last_batch_rows": None,
    "rows_per_second": None,
    "batch_running_seconds": None,
    "rows_total": None,
    "batches_total": None,
    "queries_failed": None,
    "last_error": None,
    "left_out": None,
    "isolated": None,
    "paused": None,
    "events": [],
}
"""The rest of what `kctl_agent.commands.workers` answers."""


def with_supervisor(reduced: Reduced, statuses: Iterable[WorkerStatus]) -> Reduced:
    """The result of `workers` with the supervisor's word under `supervisor`; null where an agent is only attached.

    A supervised worker whose agent is silent has a row too: its name, kind and pid, and null for what only it could
    tell. Pure.
    """
    told = {row["name"]: row for row in reduced.result["rows"] if isinstance(row.get("name"), str)}
    rows: dict[str, JsonObject] = {name: {**row, "supervisor": None} for name, row in told.items()}
    for status in statuses:
        silent = {"name": status.name, "kind": status.kind, "pid": status.pid, **_ONLY_IT_COULD_TELL}
        rows[status.name] = {**silent, **told.get(status.name, {}), "supervisor": status.to_json()}
    return replace(reduced, result={**reduced.result, "rows": [rows[name] for name in sorted(rows)]})
