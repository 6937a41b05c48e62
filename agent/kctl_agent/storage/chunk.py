"""What goes in and out of the first half of the contract: stored offsets, whose they are, chunks, what a put stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kctl_agent.errors import StorageError

if TYPE_CHECKING:
    from kctl_agent.storage.block import Columns

TopicPartition = tuple[str, int]


class GapRefused(StorageError):
    """A chunk begins above the stored offset: storing it would lose the messages between."""

    code = "gap_refused"


class StoredOffsetMissing(StorageError):
    """A chunk of a partition for which no stored offset was set."""

    code = "stored_offset_missing"


class StoredOffsetMoved(StorageError):
    """The stored offset is not the one that was decided or planned on: another owner has set it, or stored further."""

    code = "stored_offset_moved"
    retriable = True


class OtherGroup(StorageError):
    """The storage belongs to another consumer group, or to the same group of another cluster."""

    code = "other_group"


@dataclass(frozen=True, slots=True)
class _OfPartition:
    topic: str
    partition: int

    @property
    def tp(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class StoredOffset(_OfPartition):
    """How far one partition is stored: `next` is the first offset that is not. `topic_id` (KIP-516) shows a recreated
    topic, `version` counts how often `init_offsets` wrote it: `next` may come again."""

    topic_id: str | None
    next: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Advance(_OfPartition):
    """Offsets `start` up to, not including, `end` hold nothing to store, as was planned on this `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Binding:
    """Whose messages a storage holds. `cluster_id` is None where the brokers report none."""

    group: str
    cluster_id: str | None

    def differs_from(self, other: Binding) -> bool:
        """An id that is not known differs from none."""
        ids = {self.cluster_id, other.cluster_id} - {None}
        return self.group != other.group or len(ids) > 1

    def is_moved_from(self, other: Binding) -> bool:
        """Whether it is the same group of another cluster."""
        return self.group == other.group and self.differs_from(other)

    def known_from(self, before: Binding | None) -> Binding:
        """With the cluster's id as it was known before, where it is not known now."""
        return self if self.cluster_id or before is None else replace(self, cluster_id=before.cluster_id)

    def __str__(self) -> str:
        return f"group {self.group} of cluster {self.cluster_id or '(unknown)'}"


@dataclass(frozen=True, slots=True)
class Chunk(_OfPartition):
    """Messages of one partition in offset order that cover the offsets `start` up to, not including, `end` (there are
    holes). `version` is the stored offset's on which the batch was planned."""

    topic_id: str | None
    start: int
    end: int
    version: int
    columns: Columns


@dataclass(frozen=True, slots=True)
class Put:
    """What one put stored: `stored` messages of so many `bytes`, after `skipped` ones below the stored offset."""

    stored: int
    skipped: int
    bytes: int
