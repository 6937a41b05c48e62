"""`kafka_lag`, `offset_checker`: the offsets of each assigned partition."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.replies.fields import age


@dataclass(frozen=True, slots=True)
class PartitionReply:
    """`start` and `end` are the brokers' log start and end offset."""

    topic: str
    partition: int
    start: int | None = None
    committed: int | None = None
    position: int | None = None
    end: int | None = None
    lag: int | None = None
    last_timestamp: float | None = None
    """Kafka timestamp of the last stored record, in Unix seconds."""
    generation: int | None = None
    age_seconds: float | None = age()
    """Age of the brokers' offsets; None before the first answer."""
    stored_messages: int | None = None
    """Messages of the partition in the storage that are neither handled nor dead letters; None if unknown."""
    stored_seconds: float | None = age()
    """How long the oldest of these messages has been in the storage; None if there are none, or if it is unknown."""


@dataclass(frozen=True, slots=True)
class PartitionsReply:
    """The partitions of one worker, sorted."""

    rows: tuple[PartitionReply, ...] = ()


def lag_of(
    start: int | None, committed: int | None, position: int | None, end: int | None, reset: str = "earliest"
) -> int | None:
    """Counts from the committed offset to the end, as the master does, never negative. If nothing was ever committed,
    counts from the log start (`earliest`) or the position (`latest`). None if an offset is unknown."""
    first = committed
    if first is None:
        first = start if reset == "earliest" else position
    return None if end is None or first is None else max(end - first, 0)
