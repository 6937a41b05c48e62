"""A partition: how far it is read, by which member, and its lag."""

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
    """A partition as one row of `kctl.rows.columns`; what is not known is None."""

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
    """Age of `committed` and `end`."""
    lag: int | None
    """From the committed offset to the end, never negative. Where nothing was ever committed, the reset policy decides:
    `earliest` counts from the log start, `latest` from the position. Of a share group it is its coordinator's count
    (KIP-1226)."""
    behind_transaction: int | None
    """Messages from the last stable offset to the high watermark; None: not known, or not `read_committed`."""
    stored_messages: int | None
    """Messages in the storage that are neither handled nor dead letters; None: not known, or there is no storage."""
    stored_seconds: float | None
    """For how long the oldest of them has been there; None if there is none, or it is not known."""

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
