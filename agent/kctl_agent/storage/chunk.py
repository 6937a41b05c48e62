"""What goes in and out of the first half of the contract: stored offsets, whose they are, chunks, what a put stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kctl_agent.errors import StorageError

if TYPE_CHECKING:
    from kctl_agent.storage.block import Columns

__all__ = [
    "Advance",
    "Binding",
    "Chunk",
    "GapRefused",
    "OtherGroup",
    "Put",
    "StoredOffset",
    "StoredOffsetMissing",
    "StoredOffsetMoved",
    "TopicPartition",
]

TopicPartition = tuple[str, int]


class GapRefused(StorageError):
    """A chunk begins above the stored offset: storing it would lose the messages between."""

    code = "gap_refused"


class StoredOffsetMissing(StorageError):
    """A chunk of a partition for which no stored offset was set."""

    code = "stored_offset_missing"


class StoredOffsetMoved(StorageError):
    """The stored offset is not the one that was decided or planned on: another owner has set it anew since (a reset, a
    seek, a recreated topic), or has stored further."""

    code = "stored_offset_moved"
    retriable = True


class OtherGroup(StorageError):
    """The storage belongs to another consumer group, or to the same group of another cluster."""

    code = "other_group"


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """How far one partition is stored. `next` is the first offset not yet stored; `topic_id` (KIP-516) distinguishes
    a topic that was recreated.

    `version` counts how often `init_offsets` wrote it; the storage gives it. `next` alone would not do for compare
    and set: a stored offset that was set back and has come forward again is equal to what it was before.
    """

    topic: str
    partition: int
    topic_id: str | None
    next: int
    version: int = 0

    @property
    def tp(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Advance:
    """The offsets `start` up to, not including, `end` of a partition hold nothing to store. `version` is the stored
    offset's on which the batch was planned."""

    topic: str
    partition: int
    version: int
    start: int
    end: int

    @property
    def tp(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Binding:
    """Whose messages a storage holds. `cluster_id` is None where the brokers report none."""

    group: str
    cluster_id: str | None

    def differs_from(self, other: Binding) -> bool:
        """An id that is not known differs from none."""
        ids = {self.cluster_id, other.cluster_id} - {None}
        return self.group != other.group or len(ids) > 1

    def known_from(self, before: Binding | None) -> Binding:
        """With the cluster's id as it was known before, where it is not known now."""
        return self if self.cluster_id or before is None else replace(self, cluster_id=before.cluster_id)

    def __str__(self) -> str:
        return f"group {self.group} of cluster {self.cluster_id or '(unknown)'}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages of one partition in offset order that cover the offsets `start` up to, not including, `end`. `version`
    is the stored offset's on which the batch was planned.

    `start` is where the driver expects this chunk to begin, which is not always the first message's offset: control
    records, compaction and a filter of the user leave holes. `end` is the same for its end.
    """

    topic: str
    partition: int
    topic_id: str | None
    start: int
    end: int
    version: int
    columns: Columns

    @property
    def tp(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Put:
    """What one put stored: `stored` messages after `skipped` ones that lay below the stored offset, and their
    `bytes`."""

    stored: int
    skipped: int
    bytes: int
