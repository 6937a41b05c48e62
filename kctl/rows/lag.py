"""How many messages wait in Kafka: `kafka_lag`, and at a glance with the worst partitions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kctl.rows import fields
from kctl.rows.partitions import TopicPartition, topic_partition, topic_partitions
from kctl_agent.wire import JsonObject

__all__ = ["LagGlance", "LagTotals", "WorstPartition", "lag_glance", "lag_totals"]


class LagTotals(NamedTuple):
    """Sums of what is known; None where nothing is."""

    total: int | None = None
    unknown: tuple[TopicPartition, ...] = ()
    """The partitions whose lag is not known."""
    topics: Mapping[str, int | None] = MappingProxyType({})

    def to_json(self) -> JsonObject:
        return {"total": self.total, "unknown": self.unknown, "topics": self.topics}


class WorstPartition(NamedTuple):
    topic: str
    partition: int
    status: str
    lag: int | None
    lag_seconds: float | None
    reason: str

    def to_json(self) -> JsonObject:
        return self._asdict()


class LagGlance(NamedTuple):
    """Of the last collection."""

    total: int | None
    unknown: int
    """Partitions whose lag is not known."""
    seconds: float | None
    """The time lag: so long the oldest message that waits has waited at most."""
    worst: tuple[WorstPartition, ...]
    """In which messages wait, or that are in trouble: by status, then by lag."""

    def to_json(self) -> JsonObject:
        return self._asdict()


def lag_totals(result: JsonObject) -> LagTotals:
    topics = fields.object_of(fields.required(result.get("topics"), "topics"), "topics")
    return LagTotals(
        total=fields.whole(result, "total"),
        unknown=topic_partitions(result, "unknown"),
        topics={topic: fields.whole(topics, topic) for topic in topics},
    )


def lag_glance(result: JsonObject) -> LagGlance | None:
    """The one in the answer to `status`; None before the first collection."""
    if result.get("lag") is None:
        return None
    lag = fields.object_of(result["lag"], "lag")
    return LagGlance(
        fields.whole(lag, "total"),
        fields.required(fields.whole(lag, "unknown"), "unknown"),
        fields.number(lag, "seconds"),
        tuple(map(_worst, fields.objects(lag, "worst") or ())),
    )


def _worst(row: JsonObject) -> WorstPartition:
    return WorstPartition(
        *topic_partition(row),
        fields.required(fields.text(row, "status"), "status"),
        fields.whole(row, "lag"),
        fields.number(row, "lag_seconds"),
        fields.required(fields.text(row, "reason"), "reason"),
    )
