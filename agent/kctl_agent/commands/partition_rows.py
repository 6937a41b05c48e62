"""The rows that `kafka_lag` and `offset_checker` share: one per assigned partition, with every offset that is known."""

from __future__ import annotations

from kctl_agent.snapshot import PartitionFigures, Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["partition_rows"]


def partition_rows(snapshot: Snapshot, now: float) -> list[JsonObject]:
    """One row per partition in the snapshot's order; null is unknown; `age_seconds` counts from the brokers' word."""
    generation = None if snapshot.member is None else snapshot.member.generation
    return [_row(figures, generation, now) for figures in snapshot.partitions]


def _row(figures: PartitionFigures, generation: int | None, now: float) -> JsonObject:
    return {
        "topic": figures.topic,
        "partition": figures.partition,
        "start": figures.start,
        "committed": figures.committed,
        "position": figures.position,
        "end": figures.end,
        "lag": figures.lag,
        "last_timestamp": figures.last_timestamp,
        "generation": generation,
        "age_seconds": None if figures.taken_at is None else max(now - figures.taken_at, 0.0),
    }
