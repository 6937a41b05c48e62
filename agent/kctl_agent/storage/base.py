"""The contract of a storage. tests/conformance tests each part.

For the workers that put messages:

- **The stored offset decides.** One transaction writes messages *and* moves stored offsets. Messages below the stored
  offset are skipped, so a retried task or a partition's former owner stores no message twice. A chunk that starts above
  the stored offset is rejected, because the messages in between would be lost.
- **Only `init_offsets` moves a stored offset backwards.** It also increases the offset's `version`. A put with the old
  version is rejected, so a worker that was frozen cannot interfere with the partition's next owner.
- **One storage, one group.** `bind` ties a storage to one group of one cluster, unless it is a Delta table. A table
  can keep stored offsets of several groups and clusters.
- **Durable once the writer is closed.** Only then commit to Kafka. `stored_offsets` returns only durable offsets.

For the sinkers that claim messages:

- **At least once, normally once.** A block is leased to one sinker at a time. The block is delivered again only if the
  lease ended before `settle`, or if some messages failed.
- **The lease decides.** If the lease is lost, `settle` does not change the storage. An expired lease stays valid until
  the next `claim` or `requeue_stuck` ends it.
- **A message is always in one place.** One transaction removes it, keeps it for a retry, or makes it a dead letter. A
  new dead letter replaces an older one of the same message.
- **Order.** Without failures, a partition's blocks are delivered in offset order. Retried blocks are delivered before
  newer ones. With `ordered`, no block is delivered while an earlier block of its partition is leased or delayed.
- **Time never goes back.** Setting the wall clock does not change leases and delays.
- **Damage stays local.** An unreadable block becomes a dead letter with its bytes.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kctl_agent.errors import StorageError
from kctl_agent.replies.block_size import RECENT_DEAD_SECONDS, RecentDeadLetters
from kctl_agent.storage.causes import public_class
from kctl_agent.storage.chunk import (
    NONE_STORED,
    Advance,
    Binding,
    Chunk,
    Put,
    StoredOffset,
    StoredOffsets,
    TopicPartition,
)
from kctl_agent.storage.claim import NONE_DEAD, Claim, DeadLetter, DeadLetterGroup, DeadLetterPage, Errors, Settled
from kctl_agent.storage.limits import StorageLimits, StorageStats, TableStats
from kctl_agent.storage.selection import EVERYTHING, Selection

if TYPE_CHECKING:
    from kctl_agent.message import Message
    from kctl_agent.storage.block import Block


PAGE = 1000
PAGE_BYTES = 16 << 20
STEP_SECONDS = 0.5
_RECENT_DEAD_READ_SECONDS = 2.0

Progress: TypeAlias = Callable[[int], None]
"""Receives the number of dead letters processed so far; may raise to stop."""
P = TypeVar("P")  # the position of a dead letter; its text becomes `DeadLetterPage.next`
Step: TypeAlias = tuple[Iterable[tuple[P, DeadLetter]], P | None]
"""Rows that were read, and the position to continue after; None at the end."""


def silent(_: int) -> None: ...


class StorageUnusable(StorageError, code="storage_unusable", retriable=True):
    """The storage cannot be opened or written. A folder or permission is missing, the disk is full, or the storage is
    damaged or of another version."""


class StorageMisconfigured(StorageUnusable, code="storage_misconfigured", retriable=False):
    """A package is missing, or the storage's endpoint, region or credentials file is invalid. `kctl` exits with 2."""


class TableRefused(StorageError, code="table_refused"):
    """kctl cannot write to this Delta table, or cannot write the batch's columns to it. The error names the cause."""


class RowRefused(TableRefused, code="row_refused"):
    """A value by which a Delta table is partitioned is too long for a folder name. The error names the column."""


class OffsetStore(ABC):
    """Keeps the stored offset of each partition. Any thread of any process may call every method."""

    limits: StorageLimits = StorageLimits()
    exchanges: int = 0  # how often this process found that a file storage's file was replaced

    @property
    @abstractmethod
    def identity(self) -> str: ...

    @abstractmethod
    def prepare(self) -> None: ...

    @abstractmethod
    def stored_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]: ...

    @abstractmethod
    def bind(self, owner: Binding, *, take_over: bool = False) -> str:
        """Ties this storage to `owner` and returns the storage's random id. If the storage has another owner, raises
        OtherGroup, or with `take_over` replaces that owner.

        A copied storage keeps its id. A storage that lost its data gets a new id. A Delta table accepts any owner.
        Before `bind`, a table's methods that need an owner raise StorageUnusable.
        """

    def moved_from(self) -> Binding | None:
        """If a table has this group's offsets, but only for other clusters, returns the Binding for one of these."""
        return None

    @abstractmethod
    def init_offsets(self, stored_offsets: Collection[StoredOffset], seen: StoredOffsets = NONE_STORED) -> None:
        """Sets stored offsets, also to lower values, in one transaction, and gives each the next `version`. `seen` has
        the stored offsets that the caller has read. If one has changed since, raises StoredOffsetMoved and sets none.
        """

    @abstractmethod
    def advance_offsets(self, advances: Collection[Advance]) -> None:
        """Moves stored offsets past ranges without messages, in one transaction. If it raises GapRefused,
        StoredOffsetMissing or StoredOffsetMoved, no stored offset was moved."""

    @abstractmethod
    def stats(self) -> StorageStats | TableStats:
        """Returns message counts and free space. Reads no messages."""

    def expire_dead(self) -> int:
        return 0

    def dead_letter_store(self) -> DeadLetterStore | None:
        """Returns access to this storage's dead letters, or None for a table before `bind`."""
        return None

    def close(self) -> None:  # noqa: B027 - not every storage holds something open
        """Closes the connections. The next call of any method connects again."""


class DeadLetterStore(ABC):
    note: str = ""  # a remark on the last change, such as the number of skipped dead letters

    @property
    @abstractmethod
    def identity(self) -> str: ...

    @abstractmethod
    def dead_page(
        self,
        selection: Selection = EVERYTHING,
        after: str | None = None,
        limit: int = PAGE,
        seconds: float | None = None,
    ) -> DeadLetterPage:
        """Returns up to `limit` dead letters, oldest first. After `seconds`, returns the dead letters found so far.
        `after` is the `next` of the previous page. Raises BadParams if `after` is malformed."""

    def dead(
        self, selection: Selection = EVERYTHING, limit: int | None = None, progress: Progress = silent
    ) -> Iterator[DeadLetter]:
        after, left = None, limit
        while left is None or left > 0:
            page = self.dead_page(selection, after, PAGE if left is None else min(left, PAGE), STEP_SECONDS)
            progress(0)
            yield from page.rows
            after, left = page.next, None if left is None else left - len(page.rows)
            if after is None:
                return

    @abstractmethod
    def find_dead(self, id: str) -> DeadLetter | None:  # noqa: A002
        ...

    @abstractmethod
    def dead_groups(
        self, selection: Selection = EVERYTHING, hours: int = 0, progress: Progress = silent
    ) -> list[DeadLetterGroup]:
        """Counts dead letters by cause, most frequent first, and each cause also by hour for the last `hours` hours."""

    def recent_dead(self) -> RecentDeadLetters | None:
        """Counts the dead letters of the last five minutes. Raises StorageError, also if this takes more than 2 s."""
        now, deadline = time.time(), time.monotonic() + _RECENT_DEAD_READ_SECONDS

        def in_time(_: int) -> None:
            if time.monotonic() > deadline:
                raise StorageError("the dead letters of the last minutes could not be read in time")

        if not (groups := self.dead_groups(Selection(died_from=now - RECENT_DEAD_SECONDS), 0, in_time)):
            return None
        ages = (max(now - at, 0.0) for at in (min(x.first_died for x in groups), max(x.last_died for x in groups)))
        return RecentDeadLetters(sum(x.count for x in groups), public_class(groups[0].cause.error_class), *ages)

    def count_dead(self, selection: Selection = EVERYTHING, progress: Progress = silent) -> int:
        return sum(group.count for group in self.dead_groups(selection, 0, progress))

    @abstractmethod
    def remove_dead(
        self, selection: Selection = EVERYTHING, expect: int | None = None, progress: Progress = silent
    ) -> int:
        """Deletes dead letters, except requeued ones, and returns the number deleted. Calls `progress` with the number
        so far. If `progress` raises, the remaining dead letters stay. If `expect` is not the number of matching dead
        letters, raises CountChanged and deletes none."""

    @abstractmethod
    def requeue_dead(
        self, selection: Selection = EVERYTHING, expect: int | None = None, progress: Progress = silent
    ) -> int:
        """Requeues dead letters for sinkers, or in mode `lake` for a worker, and returns their number. Damaged dead
        letters stay. Raises the errors of `remove_dead`, and StorageError if `storage.mode` is `directly`."""

    @abstractmethod
    def move_dead(
        self,
        send: Callable[[list[DeadLetter]], list[DeadLetter]],
        selection: Selection = EVERYTHING,
        expect: int | None = None,
        progress: Progress = silent,
    ) -> int:
        """Removes dead letters that `send` has stored elsewhere, and returns their number.

        `send` receives some dead letters at a time and returns the ones it has stored. After a crash, it may receive
        some of them again. If a dead letter is requeued during the move, the copy that `send` stored may remain too.
        Damaged dead letters stay. `expect` and `progress` are as in `remove_dead`.
        """


class Storage(OffsetStore, DeadLetterStore):
    """A storage in which messages wait for sinkers. Instances can be pickled."""

    @abstractmethod
    def stats(self) -> StorageStats: ...

    @abstractmethod
    def writer(self) -> Writer:
        """Opens a writer, which is a connection for puts. The caller closes it."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]: ...

    @abstractmethod
    def claim(
        self, owner: str, limit: int, lease_seconds: float, *, ordered: bool = False, limit_bytes: int | None = None
    ) -> list[Claim]:
        """Leases pending blocks until they have `limit` messages or more. First, blocks whose delay or lease has
        expired become pending. An expired lease counts as a try. The leased blocks' stored size is at most
        `limit_bytes`, unless the first block is larger. With `ordered`, leases at most one block per partition. All
        sinkers must pass the same `ordered`."""

    @abstractmethod
    def settle(
        self, claim: Claim, acks: Sequence[bool], *, dead: Mapping[int, str] = NONE_DEAD, retry_seconds: float = 0.0
    ) -> Settled:
        """Settles each message of a claim. `dead` maps a message's index to its error, and these messages become dead
        letters whatever their ack. Other messages with a false ack are retried after `retry_seconds`, with `tries` + 1.
        Raises ValueError unless each message has an ack."""

    @abstractmethod
    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        """Extends the lease to `lease_seconds` from now. Returns False if the lease is lost."""

    @abstractmethod
    def release(self, owner: str, *, count_try: bool = False) -> int:
        """Makes blocks leased to `owner` claimable again, and returns the number of messages. If `owner` died, pass
        `count_try`, so that a message that always kills its handler runs out of tries."""

    @abstractmethod
    def dead_letter(
        self, messages: Sequence[Message], error: Errors, topic_id: str | None = None, advance: Advance | None = None
    ) -> None:
        """Stores messages as dead letters. With `advance`, the same transaction moves the stored offset past them.
        If the stored offset is not `advance.start`, raises GapRefused, StoredOffsetMissing or StoredOffsetMoved."""

    @abstractmethod
    def clear(self, selection: Selection = EVERYTHING) -> int:
        """Deletes pending and delayed messages, but not leased ones, and returns their number. Stored offsets stay."""

    @abstractmethod
    def requeue_stuck(self, selection: Selection = EVERYTHING) -> int:
        """Makes delayed blocks and blocks with expired leases claimable, and returns the number of messages. If
        the selection has `older_than_seconds`, also ends leases taken at least that long ago, even if renewed."""

    def dead_letter_store(self) -> DeadLetterStore:
        return self

    def expire_dead(self) -> int:
        age = self.limits.dead_seconds
        return 0 if age is None else self.remove_dead(Selection(older_than_seconds=age))


class Writer(ABC):
    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def portions(self, chunks: Sequence[Chunk]) -> Iterator[Sequence[Chunk]]:
        """Divides chunks into portions to put one after another."""
        yield chunks

    def put(self, chunk: Chunk) -> Put:
        return self.put_all([chunk])[0]

    @abstractmethod
    def put_all(self, chunks: Sequence[Chunk]) -> list[Put]:
        """Stores chunks, one per partition, and moves each stored offset to its chunk's end, in one transaction.
        If it raises GapRefused, StoredOffsetMissing, StoredOffsetMoved or StorageUnusable, no message was stored."""

    @abstractmethod
    def close(self) -> None:
        """Makes the puts durable. If it raises StorageUnusable, no put counts as stored."""


def read_page(
    read: Callable[[P | None, int], Step[P]],
    is_selected: Callable[[DeadLetter], bool],
    after: P | None,
    limit: int,
    seconds: float | None,
) -> DeadLetterPage:
    until = None if seconds is None else time.monotonic() + seconds
    found: list[DeadLetter] = []
    size, place = 0, after
    while len(found) < limit and size < PAGE_BYTES:
        rows, last = read(place, limit - len(found))
        for place, dead_letter in rows:
            size += len(dead_letter.block.body)
            if is_selected(dead_letter):
                found.append(dead_letter)
            if len(found) == limit or size >= PAGE_BYTES:
                return DeadLetterPage(found, str(place))
        if last is None:
            return DeadLetterPage(found, None)
        place = last
        if until is not None and time.monotonic() >= until:
            break
    return DeadLetterPage(found, str(place))
