"""The contract of a storage, and the types of its calls. tests/conformance has a class of tests for each of its parts.

What every implementation guarantees to the workers that put:

- **One transaction.** `put_all`, or of a table the commit of a batch, writes messages *and* moves stored offsets.
- **The stored offset decides.** Messages below the stored offset are skipped, so a task that is retried, a batch that
  is run again and two owners that overlap store nothing twice. A chunk that begins above the stored offset is refused
  (`GapRefused`): it would lose what lies between.
- **Only `init_offsets` moves a stored offset backwards**, and only if it still is the one that the decision was made
  on: compare and set. Each such write gives it a new version; puts and advances that were planned on another are
  refused (`StoredOffsetMoved`). So a worker that was frozen between any two steps can neither move the stored offset
  of the next owner nor store beside it.
- **One storage, one group.** With the first `bind` a storage gets an id of its own and belongs to one group of one
  cluster; every other is refused. A table keeps the stored offsets of each group of each cluster apart.
- **Durable when the writer is closed.** Only then may an offset be committed. So is a stored offset that was returned.

And to the sinkers that claim:

- **At least once, and once as a rule.** A block belongs to one owner at a time. It comes again only when its lease ran
  out, its owner was released, or messages of it failed.
- **The lease decides.** What holds no lease any more can settle nothing: `settle` changes everything or nothing, and
  returns which. A lease that ran out but was not given to anybody else since is still good.
- **A message is never between two places.** One transaction takes it out of its block and puts it where it belongs:
  nowhere, into the smaller block of those that come again, or among the dead letters, in place of an older one.
- **Order.** Blocks of a partition are handed out in offset order as long as nothing failed; what comes again comes
  before what was put later. With `ordered` nothing of a partition is handed out while an earlier block of it is leased
  or waits for its next try.
- **Time only goes on.** Leases and delays are measured on a clock that setting the wall clock does not move.
- **Damage stays local.** A block that cannot be read becomes a dead letter with its bytes; the others go on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from kctl_agent.errors import StorageError
from kctl_agent.storage.chunk import Advance, Binding, Chunk, Put, StoredOffset, TopicPartition
from kctl_agent.storage.claim import Claim, DeadLetter, DeadLetterGroup, DeadLetterPage, Settled
from kctl_agent.storage.dead_letter_pages import PAGE, STEP_SECONDS, Progress, silent
from kctl_agent.storage.limits import StorageLimits, StorageStats, TableStats
from kctl_agent.storage.selection import EVERYTHING, Selection

if TYPE_CHECKING:
    from kctl_agent.message import Message
    from kctl_agent.storage.block import Block


class StorageUnusable(StorageError):
    """The storage cannot be opened or written: missing folder, rights, full disk, another version, damage."""

    code = "storage_unusable"
    retriable = True


class StorageMisconfigured(StorageUnusable):
    """What its settings name cannot be used by any process: a package that is missing, a file of keys."""

    code = "storage_misconfigured"
    retriable = False


class TableRefused(StorageError):
    """The table, or what is to be written into it, is of a kind that cannot be written; another try would not help."""

    code = "table_refused"


class RowRefused(TableRefused):
    """A row of a batch has a value that cannot be written."""

    code = "row_refused"


class OffsetStore(ABC):
    """How far each partition is stored, and in what. Every method may be called from any process and any thread."""

    limits: StorageLimits = StorageLimits()
    exchanges: int = 0
    """How often this process has found another file in the place of this one, of a storage that is a file."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Equal for all processes that share this storage, `file:/absolute/path` for instance."""

    @abstractmethod
    def prepare(self) -> None:
        """Create what is missing and check what is there; raises `StorageUnusable` with the reason."""

    @abstractmethod
    def stored_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        """The stored offsets of these partitions; a partition without one is absent."""

    @abstractmethod
    def bind(self, owner: Binding, *, take_over: bool = False) -> str:
        """The id of this storage, a random one that is made with the first call and stays with the messages: a copy of
        the storage has the same, an emptied storage another. Empty: this storage keeps nothing that could be lost. With
        the first call the storage belongs to `owner`; with `take_over` it does from now on, even if it belonged to
        another. Of a table `owner` is whose stored offsets are meant from now on; before the first call what reads or
        sets some raises `StorageUnusable`. Raises OtherGroup: it belongs to somebody else; nothing was changed."""

    def moved_from(self) -> Binding | None:
        """The same group of another cluster that has stored offsets in a table, where the owner has none."""
        return None

    @abstractmethod
    def init_offsets(
        self,
        stored_offsets: Collection[StoredOffset],
        seen: Mapping[TopicPartition, StoredOffset] = MappingProxyType({}),
    ) -> None:
        """Write these stored offsets, backwards too, in one transaction, if each still is as it was `seen` (not in
        there: there was none); each gets the next `version`. Raises StoredOffsetMoved: nothing was written."""

    @abstractmethod
    def advance_offsets(self, advances: Collection[Advance]) -> None:
        """Move stored offsets forward over offsets that hold no message, in one transaction; never backwards. Raises
        GapRefused, StoredOffsetMissing, StoredOffsetMoved: nothing was written."""

    @abstractmethod
    def stats(self) -> StorageStats | TableStats:
        """Counted without reading messages; cheap enough for once a second."""

    def expire_dead(self) -> int:
        """Remove dead letters that are older than the limits allow, once a minute; returns the number of messages."""
        return 0

    def dead_letter_store(self) -> DeadLetterStore | None:
        """The dead letters of this storage; None where it is not known yet whose they are."""
        return None

    def close(self) -> None:  # noqa: B027 - not every storage holds something open
        """Give up connections; the next call opens them again."""


class DeadLetterStore(ABC):
    """Where messages are that were given up."""

    note: str = ""
    """What the last change adds to its count, such as dead letters that it left."""

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
        """The next dead letters behind the `next` of a former page, the oldest first. Once it has read for so many
        seconds it returns what it has found. Raises BadParams: `after` is nothing of the kind."""

    def dead(
        self, selection: Selection = EVERYTHING, limit: int | None = None, progress: Progress = silent
    ) -> Iterator[DeadLetter]:
        """Dead letters, the oldest first, read as they are iterated; without a limit, those of a table file by file."""
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
        """The dead letter of this id."""

    @abstractmethod
    def dead_groups(
        self, selection: Selection = EVERYTHING, hours: int = 0, progress: Progress = silent
    ) -> list[DeadLetterGroup]:
        """Dead letters counted by what they died of, the most frequent first, and how many died in each of the last
        `hours`. `progress` is called now and then with 0, and may raise to stop."""

    def count_dead(self, selection: Selection = EVERYTHING, progress: Progress = silent) -> int:
        """How many dead letters there are."""
        return sum(group.count for group in self.dead_groups(selection, 0, progress))

    @abstractmethod
    def remove_dead(
        self, selection: Selection = EVERYTHING, expect: int | None = None, progress: Progress = silent
    ) -> int:
        """Remove dead letters for good, but for those that were put back; returns how many. `progress` gets how many it
        has been so far, while they are counted 0, and may raise to stop: what is done then stays done. Raises
        CountChanged: not `expect` dead letters match; nothing was changed."""

    @abstractmethod
    def requeue_dead(
        self, selection: Selection = EVERYTHING, expect: int | None = None, progress: Progress = silent
    ) -> int:
        """Put dead letters back, to be handed out anew, or, of a table, to become rows by a worker; returns how many.
        From now on they are no dead letters. Damaged ones stay. `progress` as above. Raises CountChanged: not `expect`
        dead letters match; nothing was changed; StorageError: there is no place to put them."""

    @abstractmethod
    def move_dead(
        self,
        send: Callable[[list[DeadLetter]], list[DeadLetter]],
        selection: Selection = EVERYTHING,
        expect: int | None = None,
        progress: Progress = silent,
    ) -> int:
        """Remove dead letters that are somewhere else: `send` gets some at a time, and returns those that are; returns
        how many were removed. What it raises ends the call. It may get the same ones again, when the process ends
        before they are removed; what somebody else puts back meanwhile may be in both places. Damaged ones stay.
        `progress` as above. Raises CountChanged: not `expect` dead letters match; nothing was changed."""


class Storage(OffsetStore, DeadLetterStore):
    """One in which messages wait for sinkers. Instances can be pickled."""

    @abstractmethod
    def stats(self) -> StorageStats: ...

    @abstractmethod
    def writer(self) -> Writer:
        """A connection for puts, to be closed by the caller (it is a context manager)."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All blocks but dead ones, in the order they were put, for audits."""

    @abstractmethod
    def claim(
        self, owner: str, limit: int, lease_seconds: float, *, ordered: bool = False, limit_bytes: int | None = None
    ) -> list[Claim]:
        """Lease blocks to `owner`: as many as hold `limit` messages together, but not more than `limit_bytes` as they
        are stored; at least one; none when none waits. First gives back leases that ran out (that counts as a try) and
        delays that are over. With `ordered`, on which all should agree, one block of each partition."""

    @abstractmethod
    def settle(
        self,
        claim: Claim,
        acks: Sequence[bool],
        *,
        dead: Mapping[int, str] = MappingProxyType({}),
        retry_seconds: float = 0.0,
    ) -> Settled:
        """Settle each message of the claim: done or not. Those in `dead`, by their place in the claim, become dead
        letters with that error, whatever their ack is. The others that are not done come again after `retry_seconds`
        with one more try. Raises ValueError: other acks."""

    @abstractmethod
    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        """Let the lease run for so long from now on. False: it is lost."""

    @abstractmethod
    def release(self, owner: str, *, count_try: bool = False) -> int:
        """Give back all that `owner` holds, to be claimed at once; returns the number of messages. `count_try` is for
        an owner that died: the message that killed it must not do so for ever."""

    @abstractmethod
    def dead_letter(
        self,
        messages: Sequence[Message],
        error: str | Sequence[str],
        topic_id: str | None = None,
        advance: Advance | None = None,
    ) -> None:
        """Store messages as dead letters, with one error or one each, whether they are in the storage or not. With
        `advance` the stored offset moves over them, in the same transaction. Raises StoredOffsetMissing,
        StoredOffsetMoved: the stored offset is not where `advance` starts; nothing was written."""

    @abstractmethod
    def clear(self, selection: Selection = EVERYTHING) -> int:
        """Remove for good what waits, never what is leased; returns the number of messages. Stored offsets stay."""

    @abstractmethod
    def requeue_stuck(self, selection: Selection = EVERYTHING) -> int:
        """Put back to be claimed what waits for its next try, and leases that ran out or, with `older_than_seconds`,
        were taken so long ago, whatever was renewed since; returns the number of messages."""

    def dead_letter_store(self) -> DeadLetterStore:
        return self

    def expire_dead(self) -> int:
        age = self.limits.dead_seconds
        return 0 if age is None else self.remove_dead(Selection(older_than_seconds=age))


class Writer(ABC):
    """Puts chunks, as many partitions' at a time as one transaction takes."""

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def portions(self, chunks: Sequence[Chunk]) -> Iterator[Sequence[Chunk]]:
        """Chunks of a partition each, in parts whose puts, one after another, cost least: as a rule one part is all of
        them. A chunk may be divided; no part has two of one partition."""
        yield chunks

    def put(self, chunk: Chunk) -> Put:
        """`put_all` of one."""
        return self.put_all([chunk])[0]

    @abstractmethod
    def put_all(self, chunks: Sequence[Chunk]) -> list[Put]:
        """Store chunks, each of a partition of its own, and move the stored offsets to their ends, in one transaction.
        Raises GapRefused, StoredOffsetMissing, StoredOffsetMoved, StorageUnusable: nothing was written of any."""

    @abstractmethod
    def close(self) -> None:
        """Make durable what was put, and close. Raises StorageUnusable: nothing that was put may count as stored."""
