"""How many messages wait in Kafka: `kafka_lag`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kctl.rows import fields
from kctl.rows.partitions import TopicPartition, topic_partitions
from kctl_agent.wire import JsonObject

__all__ = ["LagTotals", "lag_totals"]


class LagTotals(NamedTuple):
    """Sums of what is known; None where nothing is."""

    total: int | None = None
    unknown: tuple[TopicPartition, ...] = ()
    """The partitions whose lag is not known."""
    topics: Mapping[str, int | None] = MappingProxyType({})

    def to_json(self) -> JsonObject:
        return {"total": self.total, "unknown": self.unknown, "topics": self.topics}


def lag_totals(result: JsonObject) -> LagTotals:
    topics = fields.object_of(fields.required(result.get("topics"), "topics"), "topics")
    return LagTotals(
        total=fields.whole(result, "total"),
        unknown=topic_partitions(result, "unknown"),
        topics={topic: fields.whole(topics, topic) for topic in topics},
    )
