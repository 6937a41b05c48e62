"""The rows that `kafka_lag` and `offset_checker` share: one per assigned partition, with every offset that is known."""

from __future__ import annotations

from kctl_agent.snapshot import PartitionStats, Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["partition_rows"]


def partition_rows(snapshot: Snapshot, now: float) -> list[JsonObject]:
    """One row per partition in the snapshot's order; null is unknown; `age_seconds` counts from the brokers' word."""
    generation = None if snapshot.member is None else snapshot.member.generation
    if snapshot.kind == "worker":
        generation = generation or 0  # not joined; Kafka counts from 1, and what is of no group is attached
    return [_row(stats, generation, now) for stats in snapshot.partitions]


def _row(stats: PartitionStats, generation: int | None, now: float) -> JsonObject:
    return {
        "topic": stats.topic,
        "partition": stats.partition,
        "start": stats.start,
        "committed": stats.committed,
        "position": stats.position,
        "end": stats.end,
        "lag": stats.lag,
        "last_timestamp": stats.last_timestamp,
        "generation": generation,
        "age_seconds": None if stats.taken_at is None else max(now - stats.taken_at, 0.0),
    }
