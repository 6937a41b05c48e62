"""Messages that a transform could not read: rows of a second Delta table, beside the one that they were meant for.

Two tables have no common commit. So the dead letters of a batch are committed first, with stored offsets of their own
(`DeadLetterTable.begin`), and then its rows with those of the group. A batch that is run again, because nothing of its
rows was committed, finds the dead letters that it has stored already (`earlier_try`), and leaves those messages out
before the transform sees them. So each message ends in one of the two tables, also where another transform, that marks
other messages, runs the batch again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kctl_agent.message import Message
from kctl_agent.storage.ack_rules import as_dead_letters
from kctl_agent.storage.base import (
    Binding,
    DeadLetter,
    DeadLetterStore,
    Selection,
    StorageError,
    StoredOffset,
    TopicPartition,
)
from kctl_agent.storage.claim import EVERYTHING
from kctl_agent.storage.lake.dead_letters.numbered_rows import NUMBER, TRIES, read
from kctl_agent.storage.lake.dead_letters.requeue import Requeues
from kctl_agent.storage.lake.dead_letters.selection import READING, is_null, of_cluster, predicate, reading, than
from kctl_agent.storage.lake.delta.offsets import dead_letter_owner
from kctl_agent.storage.lake.table_storage import LakeBatch, Move, TableStorage

if TYPE_CHECKING:
    import pyarrow as pa

    from kctl_agent.storage.lake.folder import Folder

__all__ = ["DeadLetterTable", "EarlierTry"]


@dataclass(frozen=True, slots=True)
class EarlierTry:
    """Of a batch whose rows were not committed then: `stored` are the offsets up to which its dead letters are stored,
    `messages` those that are dead letters, by topic, partition and offset."""

    stored: Mapping[TopicPartition, StoredOffset] = field(default_factory=dict)
    messages: tuple[tuple[str, int, int], ...] = ()


class DeadLetterTable(DeadLetterStore):
    """The dead letters of one group."""

    def __init__(self, lake: TableStorage, group: str) -> None:
        self.group = group
        self._lake = lake
        self.storage = lake.beside()

    @cached_property
    def requeues(self) -> Requeues:
        """Of this group in the cluster that the table was bound for."""
        return Requeues(self._lake, self.storage, Binding(self.group, self._lake.cluster_id))

    @property
    def identity(self) -> str:
        return self.storage.identity

    @property
    def folder(self) -> Folder:
        return self.storage.folder

    def earlier_try(self, batch: LakeBatch) -> EarlierTry:
        """What became of this batch when it was run before. Raises StorageUnusable."""
        if not self.storage.table.exists():
            return EarlierTry()
        self._bind(batch)
        stored = self.storage.stored_offsets(batch.moves)
        found: list[tuple[str, int, int]] = []
        for tp, (before, _) in batch.moves.items():
            if before is not None and (at := _stored_before(stored.get(tp), before)) > before.next:
                selection = Selection(*tp, before.next, at - 1)
                found += [(*tp, offset) for offset in self._offsets(selection, self.reading(batch, tp))]
        return EarlierTry(stored, tuple(sorted(found)))

    @staticmethod
    def reading(batch: LakeBatch, tp: TopicPartition) -> str:
        """What the column `READING` holds of this batch's messages."""
        return reading(batch.table_id, batch.moves[tp][1].version)

    def _offsets(self, selection: Selection, reading: str) -> set[int]:
        """Of this cluster's, also of those that were put back and no worker has taken yet."""
        wanted = predicate(self.group, selection) & of_cluster(self._lake.owner.cluster_id)
        wanted &= than(READING, "=", reading)
        with self.storage.table.latest() as table:
            return set(read(table, ["offset"], wanted)["offset"].to_pylist())

    def begin(self, batch: LakeBatch, schema: str, earlier: EarlierTry) -> LakeBatch:
        """What the dead letters of this batch, of that schema, are written to and committed by. None of them may be one
        of an earlier try. No other batch of these offsets that has begun before is committed from now on.

        Raises:
            StoredOffsetMoved: the batch cannot be committed any more.
            StorageUnusable, TableRefused: this table cannot be used.
        """
        self.storage.prepare()
        self.storage.fit(schema)
        id_ = self._bind(batch)
        with self.storage.table.state() as table:
            version = table.version
        self._lake.claim(batch)  # only now that there is a table: a claim by another one has it fenced (`fence`)
        return self.storage.plan(id_, version, _moves(batch, earlier), {})

    def fence(self, batch: LakeBatch, earlier: EarlierTry) -> bool:
        """Have nobody store dead letters any more who has read the stored offsets before this batch, such as a process
        that was frozen while it had its partitions, or one that does not know that it lost them. Without it, it could
        where this batch has no dead letter. What was done for a claim (`LakeBatch.claims`) holds until there is
        another: who makes one later has this batch refused.

        False: there is no table yet, which that process may still make.

        Raises:
            StoredOffsetMoved: somebody has stored dead letters of these partitions since `earlier`.
            StorageUnusable: it is not known whether that was done.
        """
        if not self.storage.table.exists():
            return False
        self.storage.commit(_moves(batch, earlier), id_=self._bind(batch))
        return True

    def _bind(self, batch: LakeBatch) -> str:
        """The id of this table. One that replaced the other table begins anew here too."""
        owner = self._lake.owner
        return self.storage.bind(dead_letter_owner(owner.group, batch.table_id, owner.cluster_id))

    def dead(self, selection: Selection = EVERYTHING, limit: int | None = None) -> Iterator[DeadLetter]:
        limited = "" if limit is None else f" limit {limit}"
        order = f'order by failed_at, topic, "partition", "offset"{limited}'
        return map(_dead_letter, self._execute("*", selection, order))

    def find_dead(self, id: str) -> DeadLetter | None:  # noqa: A002
        """An id is `TOPIC:PARTITION:OFFSET`; of a message that became a dead letter again, the newest is found."""
        topic, *place = id.rsplit(":", 2)
        if len(place) != 2 or not all(number.isdecimal() for number in place):
            return None
        partition, offset = map(int, place)
        found = list(self.dead(Selection(topic, partition, offset, offset)))
        return found[-1] if found else None

    def count_dead(self, selection: Selection = EVERYTHING) -> int:
        return sum(row["messages"] for row in self._execute("count(*) as messages", selection))

    def count_requeued(self) -> int:
        """How many were put back and no worker has taken yet."""
        return sum(row["messages"] for row in self._execute("count(*) as messages", is_requeued=True))

    def requeue_dead(self, selection: Selection = EVERYTHING) -> int:
        """Have a worker give them to the transform once more (`requeue`); from now on they are no dead letters."""
        return self.requeues.request(predicate(self.group, selection)) if self.storage.table.exists() else 0

    def cancel_requeued(self) -> int:
        """Have those that were put back, and that no worker has taken, be dead letters again; returns how many.

        Raises RequeueTaken: a worker has just put them back; StorageUnusable.
        """
        clusters = [row["cluster"] for row in self._execute("distinct cluster", is_requeued=True)]
        return sum(Requeues(self._lake, self.storage, Binding(self.group, each)).cancel() for each in clusters)

    def clear(self, state: str, selection: Selection = EVERYTHING) -> int:
        if state != "dead":
            raise StorageError('storage.mode is "lake": rows go into a table, and nothing waits in a storage')
        if not self.storage.table.exists():
            return 0

        wanted = (predicate(self.group, selection) & is_null(NUMBER)).sql
        return self.storage.table.rewrite(lambda table: int(table.delete(wanted)["num_deleted_rows"]))

    def expire(self) -> int:
        """Remove those that are older than the limits allow; returns how many. Raises StorageUnusable."""
        age = self.storage.limits.dead_seconds
        return 0 if age is None else self.clear("dead", Selection(older_than_seconds=age))

    def _execute(
        self,
        what: str,
        selection: Selection = EVERYTHING,
        order: str = "",
        *,
        is_requeued: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Of those that are selected the ones that were put back, or the others. For a process without other threads:
        see `numbered_rows.read`."""
        if not self.storage.table.exists():
            return
        import pyarrow as pa
        from deltalake import QueryBuilder

        with self.storage.table.latest() as table:
            where = f"{predicate(self.group, selection).sql} and {NUMBER} is {'not ' * is_requeued}null"
            query = f"select {what} from dead where {where} {order}"  # noqa: S608 - values are quoted or numbers
            for rows in QueryBuilder().register("dead", table).execute(query):
                yield from _in_microseconds(pa.record_batch(rows)).to_pylist()


def _in_microseconds(rows: pa.RecordBatch) -> pa.RecordBatch:
    """With times as numbers: a producer may have sent one beyond year 9999, which Python does not have."""
    import pyarrow as pa

    for number, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type):
            at = rows.column(number).cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
            rows = rows.set_column(number, column.name, at)
    return rows


def _stored_before(there: StoredOffset | None, before: StoredOffset) -> int:
    """Up to where dead letters are stored, of messages that were read since the stored offset was last set."""
    return there.next if there is not None and there.version == before.version else 0


def _moves(batch: LakeBatch, earlier: EarlierTry) -> dict[TopicPartition, Move]:
    """What becomes of the stored offsets of dead letters with this batch. Each time they get another id in place of the
    topic's, by which a commit is refused also where another one has left the offset as it was: a batch that is run
    again begins where the offset of its earlier try may be ahead."""
    token = str(uuid.uuid4())
    moves: dict[TopicPartition, Move] = {}
    for tp, (before, after) in batch.moves.items():
        there = earlier.stored.get(tp)
        at = _stored_before(there, before) if before is not None else 0
        moves[tp] = there, replace(after, next=max(after.next, at), topic_id=token)
    return moves


def _dead_letter(row: dict[str, Any]) -> DeadLetter:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    message = Message(
        row["topic"],
        row["partition"],
        row["offset"],
        row["key"],
        row["value"],
        row["timestamp"] // 1000,
        headers,
    )
    [found] = as_dead_letters([message], None, row[TRIES], row["error"], "none", row["failed_at"] / 1e6)
    return replace(found, id=f"{message.topic}:{message.partition}:{message.offset}")
