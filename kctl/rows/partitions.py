"""Types for partitions (offsets, reader and lag) and for the lag of a group."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import inf

from msgspec import Struct

from kctl_agent.replies.fields import TopicPartition


class ResetPolicy(StrEnum):
    """Where a group without a committed offset starts: Kafka's `auto.offset.reset`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class PartitionRow(Struct, frozen=True, gc=False):
    """A partition in an answer."""

    topic: str
    partition: int
    current_offset: int | None = None
    """The committed offset."""
    kafka_max_offset: int | None = None
    """The end of the log, or with `read_committed` the last stable offset."""
    remaining_count: int | None = None
    """The lag: the messages from the committed offset to the end, never negative. Without a committed offset, the lag
    counts from the log start (reset policy `earliest`) or from the position (`latest`). For a share group, the
    coordinator reports the lag (KIP-1226)."""
    worker: str | None = None
    age_seconds: float | None = None
    """Age of the offsets."""
    behind_transaction: int | None = None
    """Messages from the last stable offset to the high watermark; absent if unknown, or without `read_committed`."""
    stored_messages: int | None = None
    """Messages in the storage that are neither handled nor dead letters; None if unknown, or without a storage."""
    stored_seconds: float | None = None
    """How long the oldest of these messages has been in the storage; None if there are none, or unknown."""


class Offsets(Struct, frozen=True):
    rows: tuple[PartitionRow, ...] = ()
    """The partitions, sorted by topic and number."""
    stale_after_seconds: float = inf
    """The age above which offsets are too old to show a current lag."""


class LagTotals(Struct, frozen=True):
    """Sums of a group's known lags. A sum is None if no lag is known."""

    total: int | None = None
    unknown: tuple[TopicPartition, ...] = ()
    """The partitions whose lag is unknown."""
    topics: Mapping[str, int | None] = {}
    behind_transaction: int | None = None
    """Messages that open transactions withhold, which are not part of the lag; None if unknown, or without
    `read_committed`."""


WORST = 3  # the most partitions of a glance


class WorstPartition(Struct, frozen=True):
    topic: str
    partition: int
    status: str
    reason: str
    lag: int | None = None
    lag_seconds: float | None = None
    oldest_unhandled_seconds: float | None = None


class LagGlance(Struct, frozen=True):
    """A short summary of a fleet's lag."""

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
