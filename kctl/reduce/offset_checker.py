"""`onOffsetChecker`: one row per partition, also for those that no worker answers for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kctl.reduce.base import Answer, ClusterFigures
from kctl.reduce.partition_rows import PartitionRow, partition_rows
from kctl_agent.wire import JsonObject

__all__ = ["of_rows", "reduce"]


def reduce(answers: Sequence[Answer], cluster: ClusterFigures | None) -> JsonObject:
    """`{"rows": [...]}`, sorted by topic and partition; the columns are those below, null where unknown."""
    return of_rows(partition_rows(answers, cluster))


def of_rows(rows: Iterable[PartitionRow]) -> JsonObject:
    """The same of rows that are merged already."""
    return {
        "rows": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "current_offset": row.committed,
                "kafka_max_offset": row.end,
                "remaining_count": row.lag,
                "worker": row.worker,
                "age_seconds": row.age_seconds,
            }
            for row in rows
        ]
    }
