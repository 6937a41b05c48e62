"""From a picture of the fleet to the JSON of each answer; pure. A figure that is not known is null."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kctl.master.snapshot import FleetSnapshot
from kctl.status import UNKNOWN, Assessment, Status
from kctl_agent.wire import JsonObject

__all__ = ["COMMANDS", "lag_rows", "lag_totals", "not_ready", "offset_rows", "rows_of", "status_of"]

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


def rows_of(resource: str, result: JsonObject) -> tuple[str, list[JsonObject]] | None:
    """The field of the result that is a list, and the list; None where there is none."""
    name = _FIELD.get(resource)
    return None if name is None else (name, result[name])


def lag_rows(snapshot: FleetSnapshot, rows: Sequence[JsonObject] | None = None) -> list[JsonObject]:
    """One row per partition: the columns of `offset_checker`, log start, position, and how it is doing. With `rows`,
    just asked for, the figures are theirs; how it is doing is judged over time and stays that of the picture."""
    assessed = {
        (row.topic, row.partition): assessment
        for row, assessment in zip(snapshot.partitions, snapshot.assessments, strict=False)
    }
    if rows is not None:
        return [_lag_row(row, None, assessed) for row in rows]
    partitions = {(row.topic, row.partition): row for row in snapshot.partitions}
    figures = snapshot.commands["offset_checker"].result["rows"]
    return [_lag_row(row, partitions.get((row["topic"], row["partition"])), assessed) for row in figures]


def _lag_row(row: JsonObject, partition: Any, assessed: Mapping[tuple[str, int], Assessment]) -> JsonObject:
    return {
        **row,
        "start": None if partition is None else partition.start,
        "position": None if partition is None else partition.position,
        **assessed.get((row["topic"], row["partition"]), UNKNOWN).to_json(),
    }


def offset_rows(snapshot: FleetSnapshot) -> list[JsonObject]:
    """The rows of `offset_checker`."""
    rows: list[JsonObject] = snapshot.commands["offset_checker"].result["rows"]
    return rows


def lag_totals(rows: Sequence[JsonObject]) -> JsonObject:
    """`{"total", "unknown", "topics"}` of rows of `offset_checker`, as the command `kafka_lag` tells them."""
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
    group, lag = snapshot.broker_group, snapshot.commands.get("kafka_lag")
    storage = snapshot.commands.get("block_size")
    leader = snapshot.commands.get("member_leader")
    counts = Counter(assessment.status.value for assessment in snapshot.assessments)
    return {
        **snapshot.group_assessment.to_json(),
        "ready": not reasons,
        "not_ready": list(reasons),
        "lag": None if lag is None else lag.result["total"],
        "partitions": {status.value: counts[status.value] for status in Status},
        "group_state": None if group is None else group.state,
        "brokers": None if snapshot.brokers is None else snapshot.brokers.to_json(),
        "group_members": None if group is None else group.members,
        "generation": None if leader is None else leader.result["generation"],
        "storage": None if storage is None else storage.result,
        "workers": [worker.to_json() for worker in snapshot.workers],
        "last_success": dict(snapshot.last_success),
        "collect_seconds": snapshot.collect_seconds,
        "last_event": last_event,
    }


def _supervised_workers(snapshot: FleetSnapshot) -> list[JsonObject]:
    """Those that should run; a sinker's last error is a message's, an attached application's its own."""
    rows = snapshot.commands["workers"].result["rows"] if "workers" in snapshot.commands else []
    return [
        row for row in rows if row.get("kind") == "worker" and (row.get("supervisor") or {}).get("desired") == "running"
    ]


def _old_figures(snapshot: FleetSnapshot, now_unix: float, patience_seconds: float) -> list[str]:
    """What the brokers have not answered for too long; parts of one age share a sentence."""
    ages: dict[str | None, list[str]] = {}
    for part, name in (("committed", "committed"), ("offsets", "end")):
        at = snapshot.last_success.get(part)
        if at is None:
            ages.setdefault(None, []).append(name)
        elif now_unix - at > patience_seconds:
            ages.setdefault(f"{now_unix - at:.0f} s old", []).append(name)
    return [
        f"the brokers' {' and '.join(names)} offsets are {'not known yet' if age is None else age}"
        for age, names in ages.items()
    ]


def not_ready(snapshot: FleetSnapshot, now: float, now_unix: float, patience_seconds: float) -> list[str]:
    """Why the fleet does not do its work: brokers not reached, a worker that should run does not or cannot store,
    partitions stand still. Empty when it does."""
    reasons = []
    age = now - snapshot.taken_at
    if age > patience_seconds:
        reasons.append(f"the last collection is {age:.0f} s old")
    reasons += _old_figures(snapshot, now_unix, patience_seconds)
    reasons += [
        f"{worker.name} is {worker.state}"
        for worker in snapshot.workers
        if worker.desired == "running" and worker.state != "running"
    ]
    reasons += [f"{row['name']}: {row['last_error']}" for row in _supervised_workers(snapshot) if row.get("last_error")]
    standing = sum(assessment.status in _TROUBLE for assessment in snapshot.assessments)
    if standing:
        reasons.append(snapshot.group_assessment.reason)
    return reasons
