"""Partitions: how far they are read, of which member, and their lag."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from kctl_agent.rpc.wire import JsonObject


class ResetPolicy(StrEnum):
    """The reset policy of a group that has committed nothing: Kafka's `auto.offset.reset`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class PartitionRow(NamedTuple):
    """The offsets of a partition; `age_seconds` is that of `committed` and `end`. A tuple, because there may be a
    hundred thousand."""

    topic: str
    partition: int
    start: int | None
    committed: int | None
    position: int | None
    end: int | None
    last_timestamp: float | None
    """Unix seconds: Kafka's timestamp of the last record that was stored."""
    worker: str | None
    generation: int | None
    age_seconds: float
    """Age of the offsets; infinite in the reply of an agent that has asked no broker yet."""
    reset: ResetPolicy = ResetPolicy.EARLIEST
    share_lag: int | None = None
    """Messages of a share group that are not done, as its coordinator counts them (KIP-1226). Some above the committed
    offset may be."""
    behind_transaction: int | None = None
    """Messages from the last stable offset to the high watermark; None: not known, or not `read_committed`."""
    stored_messages: int | None = None
    """Messages in the storage that are neither handled nor dead letters; None: not known, or there is no storage."""
    stored_seconds: float | None = None
    """For how long the oldest of them has been there; None if there is none, or it is not known."""

    @property
    def lag_from(self) -> int | None:
        """The offset from which lag is counted. Where nothing was ever committed, the reset policy decides: `earliest`
        the log start, `latest` the position, as soon as there is one."""
        if self.share_lag is not None and self.end is not None:
            return self.end - self.share_lag
        if self.committed is not None:
            return self.committed
        if self.reset == "earliest":
            return self.start
        return self.position if self.reset == "latest" else None

    @property
    def lag(self) -> int | None:
        """The lag: from `lag_from` to the end offset, never negative."""
        first = self.committed
        if first is None or self.share_lag is not None:
            first = self.lag_from
        if self.end is None or first is None:
            return None
        lag = self.end - first
        return lag if lag > 0 else 0

    def to_json(self) -> JsonObject:
        """Returns the columns of `offset_checker`."""
        behind = {} if self.behind_transaction is None else {"behind_transaction": self.behind_transaction}
        return {
            "topic": self.topic,
            "partition": self.partition,
            "current_offset": self.committed,
            "kafka_max_offset": self.end,
            "remaining_count": self.lag,
            "worker": self.worker,
            "age_seconds": self.age_seconds,
            **behind,
            "stored_messages": self.stored_messages,
            "stored_seconds": self.stored_seconds,
        }
