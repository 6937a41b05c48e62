"""Types of the workers' part of the storage contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from kctl_agent.errors import StorageError

if TYPE_CHECKING:
    from kctl_agent.storage.block import Columns

TopicPartition = tuple[str, int]


class GapRefused(StorageError, code="gap_refused"):
    """A batch's messages begin after the stored offset. Storing them would lose the messages in between."""


class StoredOffsetMissing(StorageError, code="stored_offset_missing"):
    """A partition has no stored offset. Nothing was written."""


class StoredOffsetMoved(StorageError, code="stored_offset_moved", retriable=True):
    """Another process has changed the stored offset since this process read it. The worker plans the batch again."""


class OtherGroup(StorageError, code="other_group"):
    """The storage belongs to another consumer group or cluster. The error names the two owners."""


@dataclass(frozen=True, slots=True)
class _OfPartition:
    topic: str
    partition: int

    @property
    def tp(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class StoredOffset(_OfPartition):
    """A partition's stored offset. `next` is the first offset not stored. A changed `topic_id` (KIP-516) reveals a
    recreated topic. `version` counts the writes by `init_offsets`."""

    topic_id: str | None
    next: int
    version: int = 0


StoredOffsets: TypeAlias = Mapping[TopicPartition, StoredOffset]
NONE_STORED: StoredOffsets = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Advance(_OfPartition):
    """A planned move of a stored offset from `start` to `end`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Binding:
    """The owner of a storage: a group of one cluster. `cluster_id` is None if the brokers report no id."""

    group: str
    cluster_id: str | None

    def differs_from(self, other: Binding) -> bool:
        """Whether the owners differ. An unknown cluster id matches any cluster id."""
        ids = {self.cluster_id, other.cluster_id} - {None}
        return self.group != other.group or len(ids) > 1

    def known_from(self, before: Binding | None) -> Binding:
        return self if self.cluster_id or before is None else replace(self, cluster_id=before.cluster_id)

    def __str__(self) -> str:
        return f"group {self.group} of cluster {self.cluster_id or '(unknown)'}"


@dataclass(frozen=True, slots=True)
class Chunk(_OfPartition):
    """Messages of a partition in offset order, from `start` to before `end`. The offsets may have gaps. `version` is
    the stored offset's version when the batch was planned."""

    topic_id: str | None
    start: int
    end: int
    version: int
    columns: Columns


@dataclass(frozen=True, slots=True)
class Put:
    """The result of a put. `skipped` counts messages below the stored offset."""

    stored: int
    skipped: int
    bytes: int
