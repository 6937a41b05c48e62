"""The lag of a group in messages: `kafka_lag`, and at a glance with the worst partitions."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kctl_agent.replies.fields import TopicPartition


class LagTotals(Struct, frozen=True):
    """Sums of the known lags; None if no lag is known."""

    total: int | None = None
    unknown: tuple[TopicPartition, ...] = ()
    """The partitions whose lag is unknown."""
    topics: Mapping[str, int | None] = {}
    behind_transaction: int | None = None
    """Messages behind open transactions, which are not lag yet; None if unknown, or without `read_committed`."""


WORST = 3
"""The most partitions of a glance."""


class WorstPartition(Struct, frozen=True):
    topic: str
    partition: int
    status: str
    reason: str
    lag: int | None = None
    lag_seconds: float | None = None
    oldest_unhandled_seconds: float | None = None


class LagGlance(Struct, frozen=True):
    """The lag of the last collection at a glance."""

    unknown: int
    """Partitions whose lag is not known."""
    total: int | None = None
    seconds: float | None = None
    """The time lag: the most seconds that the oldest waiting message has waited."""
    age_seconds: float | None = None
    """The age of the oldest offsets in it."""
    worst: tuple[WorstPartition, ...] = ()
    """The worst partitions, in which messages wait, or that are in trouble: by status, then by lag."""
    oldest_unhandled_seconds: float | None = None
    """The age of the oldest unhandled message, in Kafka or in the storage; None if either is not known."""
    behind_transaction: int | None = None
