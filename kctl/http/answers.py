"""From a snapshot of the fleet to the JSON of each answer; pure. A figure that is not known is null."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.reduce import encoded
from kctl.reduce.rows import WorkerRow
from kctl.status import UNKNOWN, Status
from kctl_agent.wire import JsonObject

__all__ = [
    "COMMANDS",
    "lag_rows",
    "lag_totals",
    "live_lag_rows",
    "not_ready",
    "offset_rows",
    "result_of",
    "rows_of",
    "status_of",
]

COMMANDS: Mapping[str, str] = {
    "storage": "block_size",
    "members": "member_leader",
    "brokers": "metadata_brokers",
    "topics": "metadata_topics",
    "workers": "workers",
}
"""Resource to the command whose result it is."""

_FIELD: Mapping[str, str] = {"members": "members", "brokers": "rows", "topics": "rows", "workers": "rows"}
_TROUBLE = (Status.STALLED, Status.STOPPED)


def result_of(resource: str, snapshot: FleetSnapshot) -> JsonObject:
    """The result of the resource's command, and how complete it is."""
    reduced: Reduced[Any] = getattr(snapshot, COMMANDS[resource])
    return {**encoded(reduced.result), **reduced.completeness()}


def rows_of(resource: str, result: JsonObject) -> tuple[str, list[JsonObject]] | None:
    """The field of the result that is a list, and the list; None where there is none."""
    name = _FIELD.get(resource)
    return None if name is None else (name, result[name])


def offset_rows(snapshot: FleetSnapshot) -> list[JsonObject]:
    """The rows of `offset_checker`."""
    return [row.to_json() for row in snapshot.partitions]


def lag_rows(snapshot: FleetSnapshot) -> list[JsonObject]:
    """One row per partition: the columns of `offset_checker`, log start, position, and how it is doing."""
    assessments = snapshot.assessments or repeat(UNKNOWN)
    return [
        {**row.to_json(), "start": row.start, "position": row.position, **assessment.to_json()}
        for row, assessment in zip(snapshot.partitions, assessments, strict=False)
    ]


def live_lag_rows(snapshot: FleetSnapshot, rows: Iterable[JsonObject]) -> list[JsonObject]:
    """The same of rows of `offset_checker` that were just asked for. How a partition is doing is judged over time and
    stays that of the snapshot."""
    assessed = {row[:2]: assessment for row, assessment in zip(snapshot.partitions, snapshot.assessments, strict=False)}
    return [
        {
            **row,
            "start": None,
            "position": None,
            **assessed.get((row["topic"], row["partition"]), UNKNOWN).to_json(),
        }
        for row in rows
    ]


def lag_totals(rows: Sequence[JsonObject]) -> JsonObject:
    """`{"total", "unknown", "topics"}` of encoded rows of `offset_checker`, as `kctl.reduce.kafka_lag` sums them."""
    topics: dict[str, int | None] = {}
    unknown: list[JsonObject] = []
    for row in rows:
        topics.setdefault(row["topic"], None)
        if row["remaining_count"] is None:
            unknown.append({"topic": row["topic"], "partition": row["partition"]})
        else:
            topics[row["topic"]] = (topics[row["topic"]] or 0) + row["remaining_count"]
    known = [lag for lag in topics.values() if lag is not None]
    return {"total": sum(known) if known else None, "unknown": unknown, "topics": topics}


def status_of(snapshot: FleetSnapshot, reasons: Sequence[str], last_event: int) -> JsonObject:
    """The fleet at a glance. `reasons` say why it is not ready; `last_event` is the last event's number."""
    group = snapshot.broker_group
    counts = Counter(assessment.status.value for assessment in snapshot.assessments)
    return {
        **snapshot.group_assessment.to_json(),
        "ready": not reasons,
        "not_ready": list(reasons),
        "lag": snapshot.kafka_lag.total,
        "partitions": {status.value: counts[status.value] for status in Status},
        "group_state": None if group is None else group.state,
        "brokers": encoded(snapshot.brokers),
        "group_members": None if group is None else group.members,
        "generation": snapshot.member_leader.result.generation,
        "storage": encoded(snapshot.block_size.result),
        "workers": encoded(snapshot.supervised),
        "last_success": dict(snapshot.last_success),
        "collect_seconds": snapshot.collect_seconds,
        "last_event": last_event,
    }


def _supervised_workers(snapshot: FleetSnapshot) -> list[WorkerRow]:
    """Those that should run; a sinker's last error is a message's, an attached application's its own."""
    return [
        row
        for row in snapshot.workers.result.rows
        if row.kind == "worker" and row.supervisor is not None and row.supervisor.desired == "running"
    ]


def _old_snapshots(snapshot: FleetSnapshot, now_unix: float, max_age_seconds: float) -> list[str]:
    """What the brokers have not answered for too long; parts of one age share a sentence."""
    ages: dict[str | None, list[str]] = {}
    for part, name in (("committed", "committed"), ("offsets", "end")):
        at = snapshot.last_success.get(part)
        if at is None:
            ages.setdefault(None, []).append(name)
        elif now_unix - at > max_age_seconds:
            ages.setdefault(f"{now_unix - at:.0f} s old", []).append(name)
    return [
        f"the brokers' {' and '.join(names)} offsets are {'not known yet' if age is None else age}"
        for age, names in ages.items()
    ]


def not_ready(snapshot: FleetSnapshot, now: float, now_unix: float, max_age_seconds: float) -> list[str]:
    """Why the fleet does not do its work: brokers not reached, a worker that should run does not or cannot store,
    partitions stand still. Empty when it does."""
    reasons = []
    age = now - snapshot.taken_at
    if age > max_age_seconds:
        reasons.append(f"the last collection is {age:.0f} s old")
    reasons += _old_snapshots(snapshot, now_unix, max_age_seconds)
    reasons += [
        f"{worker.name} is {worker.state}"
        for worker in snapshot.supervised
        if worker.desired == "running" and worker.state != "running"
    ]
    reasons += [f"{row.name}: {row.last_error}" for row in _supervised_workers(snapshot) if row.last_error]
    standing = sum(assessment.status in _TROUBLE for assessment in snapshot.assessments)
    if standing:
        reasons.append(snapshot.group_assessment.reason)
    return reasons
