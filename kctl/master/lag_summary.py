"""The lag of a fleet at a glance, with its worst partitions. Pure."""

from __future__ import annotations

from heapq import nsmallest

from kctl.master.snapshot import FleetSnapshot
from kctl.rows.lag import LagGlance, WorstPartition
from kctl.status import Status

_WORST = 3
_WELL = frozenset({Status.IDLE, Status.OK, Status.PAUSED})


def lag_glance(snapshot: FleetSnapshot | None) -> LagGlance | None:
    """Sums up the lag. With thousands of partitions it takes a while."""
    if snapshot is None:
        return None
    lag = snapshot.kafka_lag
    rated = (
        (-assessment.status.severity, -(row.lag or 0), number)
        for number, (row, assessment) in enumerate(zip(snapshot.partitions, snapshot.assessments, strict=False))
        if row.lag or assessment.status not in _WELL
    )
    worst = tuple(_worst(snapshot, number) for *_, number in nsmallest(_WORST, rated))
    return LagGlance(len(lag.unknown), lag.total, snapshot.group_assessment.lag_seconds, worst)


def _worst(snapshot: FleetSnapshot, number: int) -> WorstPartition:
    row, assessment = snapshot.partitions[number], snapshot.assessments[number]
    status = assessment.status.value
    return WorstPartition(row.topic, row.partition, status, assessment.reason, row.lag, assessment.lag_seconds)
