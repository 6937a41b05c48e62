"""From a snapshot of the fleet to the JSON of each answer; pure. A value that is not known is null."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any

from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.master.verdict import Verdicts
from kctl.reduce.partitions import Partitions
from kctl.rows.partitions import PartitionRow
from kctl.rows.verdict import UNOWNED
from kctl.status import UNKNOWN, Assessment, Status
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.wire import JsonObject


def offset_rows(partitions: Partitions) -> list[JsonObject]:
    """The rows of `offset_checker`, those of attached applications beside the group's marked."""
    return _sorted([row.to_json() for row in partitions.rows], [row.to_json() for row in partitions.attached])


def lag_rows(
    snapshot: FleetSnapshot, partitions: Partitions, judged: Mapping[tuple[str, int], Assessment] | None = None
) -> list[JsonObject]:
    """One row per partition: the columns of `offset_checker`, log start, position, and its assessment. `partitions` are
    those of the snapshot, or what was just asked for; `judged` are assessments by other hosts of what they read."""
    found: Iterable[Assessment] = snapshot.assessments or repeat(UNKNOWN)
    if partitions.rows is not snapshot.partitions:
        known = dict(zip((row[:2] for row in snapshot.partitions), found, strict=False)) | dict(judged or {})
        found = (known.get(row[:2], UNKNOWN) for row in partitions.rows)
    of_attached = {
        (*row[:2], row.worker): assessment
        for group in snapshot.attached
        for row, assessment in zip(group.partitions, group.assessments, strict=True)
    }
    beside = (of_attached.get((*row[:2], row.worker), UNKNOWN) for row in partitions.attached)
    return _sorted(_judged(partitions.rows, found), _judged(partitions.attached, beside))


def _judged(rows: Iterable[PartitionRow], assessments: Iterable[Assessment]) -> list[JsonObject]:
    return [
        {**row.to_json(), "start": row.start, "position": row.position, **assessment.to_json()}
        for row, assessment in zip(rows, assessments, strict=False)
    ]


def _sorted(own: list[JsonObject], attached: list[JsonObject]) -> list[JsonObject]:
    """By topic and partition, as they are paged."""
    if not attached:
        return own
    rows = [*own, *({**row, "attached": True} for row in attached)]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def joined_group(rows: Iterable[JsonObject], verdict: JsonObject) -> JsonObject:
    """How the group is doing by the rows of all hosts; the reason is that of the verdict on them, if it has one."""
    own = [row for row in rows if not row.get("attached")]
    counts = Counter(Status(row["status"]) for row in own)
    waited = [row["lag_seconds"] for row in own if row["lag_seconds"] is not None]
    findings = (each["reason"] for each in (verdict, *verdict["also"]) if each["about"] in ("partitions", UNOWNED))
    return {
        "status": max(counts, key=lambda each: each.severity, default=Status.UNKNOWN).value,
        "reason": next(findings, ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))),
        "lag_seconds": max(waited, default=None),
        "partitions": {status.value: counts[status] for status in Status},
    }


def live_head(reduced: Reduced[Any]) -> JsonObject:
    """How complete and how old a live answer is."""
    head = {**reduced.completeness(), "age_seconds": reduced.age_seconds, "live": True}
    return head if reduced.verdict is None else {**head, "verdict": encoded(reduced.verdict.main)}


def status_of(snapshot: FleetSnapshot, verdicts: Verdicts, last_event: int) -> JsonObject:
    """The fleet at a glance. `last_event` is the last event's number."""
    group = snapshot.broker_group
    counts = Counter(assessment.status.value for assessment in snapshot.assessments)
    lag, assessment = snapshot.recent_lag, snapshot.group_assessment
    if lag.total is None:  # nothing is known of now
        assessment = replace(assessment, lag_seconds=None, growth_per_second=None, catchup_seconds=None)
    return {
        **assessment.to_json(),
        "verdict": encoded(verdicts.current()),
        "max_age_seconds": verdicts.max_age_seconds,
        "lag": lag.total,
        "behind_transaction": lag.behind_transaction,
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
