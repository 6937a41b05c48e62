"""`onKafkaLag`: how many messages wait in Kafka, in all and per topic, and the partitions of which it is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kctl.reduce.base import Answer, ClusterFigures
from kctl.reduce.partition_rows import PartitionRow, partition_rows
from kctl_agent.wire import JsonObject

__all__ = ["of_rows", "reduce"]


def reduce(answers: Sequence[Answer], cluster: ClusterFigures | None) -> JsonObject:
    """`{"total", "unknown": [{"topic", "partition"}], "topics": {topic: lag}}`: sums of what is known, or null."""
    return of_rows(partition_rows(answers, cluster))


def of_rows(rows: Iterable[PartitionRow]) -> JsonObject:
    """The same of rows that are merged already."""
    topics: dict[str, int | None] = {}
    unknown: list[JsonObject] = []
    for row in rows:
        topics.setdefault(row.topic, None)
        lag = row.lag
        if lag is None:
            unknown.append({"topic": row.topic, "partition": row.partition})
        else:
            topics[row.topic] = (topics[row.topic] or 0) + lag
    known = [lag for lag in topics.values() if lag is not None]
    return {"total": sum(known) if known else None, "unknown": unknown, "topics": topics}
