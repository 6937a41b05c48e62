"""`onKafkaLag`: how many messages wait in Kafka, in all and per topic, and the partitions of which it is not known."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, ClusterFigures
from kctl.reduce.partition_rows import partition_rows
from kctl_agent.wire import JsonObject

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer], cluster: ClusterFigures | None) -> JsonObject:
    """`{"total", "unknown": [{"topic", "partition"}], "topics": {topic: lag}}`: sums of what is known, or null."""
    topics: dict[str, int | None] = {}
    unknown: list[JsonObject] = []
    for row in partition_rows(answers, cluster):
        topics.setdefault(row.topic, None)
        if row.lag is None:
            unknown.append({"topic": row.topic, "partition": row.partition})
        else:
            topics[row.topic] = (topics[row.topic] or 0) + row.lag
    known = [lag for lag in topics.values() if lag is not None]
    return {"total": sum(known) if known else None, "unknown": unknown, "topics": topics}
