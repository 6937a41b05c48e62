"""Builds the JSON of answers from a snapshot of the fleet. Pure. An unknown value is null."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.master.verdict import Verdicts
from kctl.rows.columns import Partition, PartitionColumns
from kctl.rows.verdict import UNOWNED
from kctl.status import UNKNOWN, Assessment, Status
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.wire import JsonObject


def lag_rows(
    snapshot: FleetSnapshot, partitions: PartitionColumns, judged: Mapping[Partition, Assessment] | None = None
) -> list[JsonObject]:
    """Returns a row for each of `partitions`, sorted by topic and partition, with log start, position and assessment.
    `judged` has the other hosts' assessments of the partitions that they read."""
    found: Iterable[Assessment] = snapshot.assessments
    if partitions is not snapshot.offset_checker.result:
        own = ((partitions.names.groups[0], key) for key in judged or ())
        known = dict(zip(snapshot.offset_checker.result.names.of_each(), found, strict=True))
        known |= dict(zip(own, (judged or {}).values(), strict=True))
        found = (known.get(each, UNKNOWN) for each in partitions.names.of_each())
    rows = [
        {**row, **assessment.to_json()}
        for row, assessment in zip(partitions.json_rows("start", "position"), found, strict=True)
    ]
    size = partitions.names.begins[1]
    if size == len(rows):
        return rows
    rows = [*rows[:size], *({**row, "attached": True} for row in rows[size:])]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def joined_group(rows: Iterable[JsonObject], verdict: JsonObject) -> JsonObject:
    """Makes the group's status from all hosts' partition rows. `reason` is the verdict's first finding about
    partitions. Without such a finding, `reason` is the number of partitions in each status."""
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
    head = {**reduced.completeness(), "age_seconds": reduced.age_seconds, "live": True}
    return head if reduced.verdict is None else {**head, "verdict": encoded(reduced.verdict.main)}


def status_of(snapshot: FleetSnapshot, verdicts: Verdicts, last_event: int) -> JsonObject:
    group = snapshot.broker_group
    counts = Counter(snapshot.own_assessments.statuses())
    lag, assessment = snapshot.recent_lag, snapshot.group_assessment
    if lag.total is None:  # nothing current is known
        assessment = replace(assessment, lag_seconds=None, growth_per_second=None, catchup_seconds=None)
    return {
        **assessment.to_json(),
        "verdict": encoded(verdicts.current()),
        "advice": snapshot.advice.sentence,
        "max_age_seconds": verdicts.max_age_seconds,
        "lag": lag.total,
        "behind_transaction": lag.behind_transaction,
        "partitions": {status.value: counts[status] for status in Status},
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
