"""The contract of a storage, and the words it is told in.

What every implementation guarantees:

- **One transaction.** `put` writes the messages of one chunk *and* moves the partition's mark, or does neither.
- **The mark decides.** Messages below the mark are skipped, so a task that is retried, a batch that is run again and
  two owners that overlap store nothing twice. A chunk that begins above the mark is refused (`GapRefused`): it would
  lose what lies between.
- **Only `place_marks` moves a mark backwards**, for the reasons that `kctl_agent.worker.positions` decides on.
- **Durable on return.** When `put` returns, the messages survive a power cut; only then may their offset be committed.

It leaves to others: when to put, what to commit, what a reset of the group means.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl_agent.errors import StorageError

if TYPE_CHECKING:
    from kctl_agent.storage.block import Block, Columns

__all__ = [
    "Chunk",
    "GapRefused",
    "Mark",
    "MarkMissing",
    "Put",
    "Storage",
    "StorageError",
    "StorageStats",
    "StorageUnusable",
    "TopicPartition",
    "TopicRecreated",
    "Writer",
]

TopicPartition = tuple[str, int]


class GapRefused(StorageError):
    """A chunk begins above the mark: storing it would lose the messages between."""

    code = "gap_refused"


class MarkMissing(StorageError):
    """A chunk of a partition for which no mark was placed."""

    code = "mark_missing"


class TopicRecreated(StorageError):
    """A chunk of another incarnation of the topic than the mark's (KIP-516 topic id)."""

    code = "topic_recreated"


class StorageUnusable(StorageError):
    """The storage cannot be opened or written: missing folder, rights, full disk, another version, damage."""

    code = "storage_unusable"
    retriable = True


@dataclass(frozen=True, slots=True)
class Mark:
    """How far one partition is stored. `next` is the first offset not yet stored.

    `committed` is the group's committed offset as it was last known when something was put; with `topic_id` it tells a
    reset of the group and a topic made again from a mere crash.
    """

    topic: str
    partition: int
    topic_id: str | None
    next: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Messages of one partition in offset order that cover the offsets `start` up to, not including, `end`.

    `start` is where the driver expects this chunk to begin, which is not always the first message's offset: control
    records, compaction and a filter of the user leave holes. `end` is the same for its end.
    """

    topic: str
    partition: int
    topic_id: str | None
    start: int
    end: int
    committed: int | None
    columns: Columns


@dataclass(frozen=True, slots=True)
class Put:
    """What one put stored: `stored` messages after `skipped` ones that lay below the mark, and their `bytes`."""

    stored: int
    skipped: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StorageStats:
    """Messages by state, their bytes as stored, and the limit (None: no limit)."""

    pending: int
    processing: int
    dead: int
    bytes: int
    limit: int | None


class Storage(ABC):
    """One storage. Instances can be pickled; every method may be called from any process, by one thread at a time."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Equal for all processes that share this storage, `file:/absolute/path` for instance."""

    @abstractmethod
    def prepare(self) -> None:
        """Create what is missing and check what is there; raises `StorageUnusable` with the reason."""

    @abstractmethod
    def marks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Mark]:
        """The marks of these partitions; a partition without one is absent."""

    @abstractmethod
    def place_marks(self, marks: Collection[Mark]) -> None:
        """Write these marks as they are, backwards too, in one transaction."""

    @abstractmethod
    def advance_marks(self, ends: Mapping[TopicPartition, int]) -> None:
        """Move marks forward to the end of a finished batch, over offsets that hold no message; never backwards."""

    @abstractmethod
    def record_committed(self, committed: Mapping[TopicPartition, int]) -> None:
        """Note what the group has committed, in marks that exist."""

    @abstractmethod
    def writer(self) -> Writer:
        """A connection for puts, to be closed by the caller (it is a context manager)."""

    @abstractmethod
    def stats(self) -> StorageStats:
        """Counted without reading messages; cheap enough for once a second."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All blocks in the order they were put, for audits and exports."""


class Writer(ABC):
    """Puts chunks, one after another."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def put(self, chunk: Chunk) -> Put:
        """Store a chunk and move the mark to its end.

        Raises:
            GapRefused, MarkMissing, TopicRecreated: nothing was written.
            StorageUnusable: nothing was written; the cause (full disk, rights) is in the message.
        """

    @abstractmethod
    def close(self) -> None: ...
