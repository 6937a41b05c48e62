"""Messages that a transform could not read: rows of a second Delta table, beside the one that they were meant for.

Two tables have no common commit. So the dead letters of a batch are committed first, with stored offsets of their own
(`DeadLetterTable.begin`), and then its rows with those of the group. A batch that is run again, because nothing of its
rows was committed, finds below which offsets its dead letters are stored already. Each message so ends in one of the
two tables, provided that the transform marks the same messages when it is run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kctl_agent.message import Message
from kctl_agent.storage.ack_rules import as_dead_letters
from kctl_agent.storage.base import (
    Binding,
    DeadLetter,
    DeadLetterStore,
    Selection,
    StorageError,
    TopicPartition,
)
from kctl_agent.storage.claim import EVERYTHING
from kctl_agent.storage.lake.storage import LakeBatch, LakeStorage, Move

__all__ = ["DeadLetterTable"]

TRIES = 1
"""A transform sees a message once; a batch that is run again counts nothing."""


class DeadLetterTable(DeadLetterStore):
    """The dead letters of one group."""

    def __init__(self, lake: LakeStorage, group: str) -> None:
        self.group = group
        self._lake = lake
        self._storage = lake.beside()

    @property
    def identity(self) -> str:
        return self._storage.identity

    @property
    def path(self) -> Path:
        return self._storage.path

    def begin(self, batch: LakeBatch, schema: str) -> LakeBatch:
        """What the dead letters of this batch, of that schema, are written to and committed by.

        Raises:
            StoredOffsetMoved: the batch cannot be committed any more.
            StorageUnusable, TableRefused: this table cannot be used.
        """
        self._storage.prepare()
        self._storage.fit(schema)
        owner = self._lake.owner
        # A table that replaced the other one begins anew here too.
        id_ = self._storage.bind(Binding(f"{owner.group} {batch.table_id}", owner.cluster_id))
        with self._storage.table.latest() as table:
            version = table.version()
        stored = self._storage.stored_offsets(batch.moves)
        self._lake.check(batch.moves)
        moves: dict[TopicPartition, Move] = {}
        below: dict[TopicPartition, int] = {}
        for tp, (before, after) in batch.moves.items():
            there = stored.get(tp)
            if there is not None and before is not None and there.version == before.version:
                below[tp] = there.next
            moves[tp] = there, replace(after, next=max(after.next, below.get(tp, 0)))
        return self._storage.plan(id_, version, moves, below)

    def dead(self, selection: Selection = EVERYTHING, limit: int | None = None) -> Iterator[DeadLetter]:
        limited = "" if limit is None else f" limit {limit}"
        order = f'order by failed_at, topic, "partition", "offset"{limited}'
        return map(_dead_letter, self._execute(f"{_query('*', self.group, selection)} {order}"))

    def find_dead(self, id: str) -> DeadLetter | None:  # noqa: A002
        """An id is `TOPIC:PARTITION:OFFSET`; of a message that became a dead letter again, the newest is found."""
        topic, *place = id.rsplit(":", 2)
        if len(place) != 2 or not all(number.isdecimal() for number in place):
            return None
        partition, offset = map(int, place)
        found = list(self.dead(Selection(topic, partition, offset, offset)))
        return found[-1] if found else None

    def count_dead(self, selection: Selection = EVERYTHING) -> int:
        return sum(row["messages"] for row in self._execute(_query("count(*) as messages", self.group, selection)))

    def clear(self, state: str, selection: Selection = EVERYTHING) -> int:
        if state != "dead":
            raise StorageError('storage.mode is "lake": rows go into a table, and nothing waits in a storage')
        if not self._storage.table.exists():
            return 0
        with self._storage.table.latest() as table:
            return int(table.delete(_predicate(self.group, selection))["num_deleted_rows"])

    def expire(self) -> int:
        """Remove those that are older than the limits allow; returns how many. Raises StorageUnusable."""
        age = self._storage.limits.dead_seconds
        return 0 if age is None else self.clear("dead", Selection(older_than_seconds=age))

    def _execute(self, query: str) -> Iterator[dict[str, Any]]:
        if not self._storage.table.exists():
            return
        import pyarrow as pa
        from deltalake import QueryBuilder

        with self._storage.table.latest() as table:
            for rows in QueryBuilder().register("dead", table).execute(query):
                yield from pa.record_batch(rows).to_pylist()


def _query(what: str, group: str, selection: Selection) -> str:
    return f"select {what} from dead where {_predicate(group, selection)}"  # noqa: S608 - values are quoted or numbers


def _predicate(group: str, selection: Selection) -> str:
    """What is selected, as SQL."""
    wanted = [f'"group" = {_quoted(group)}']
    if selection.topic is not None:
        wanted.append(f"topic = {_quoted(selection.topic)}")
    if selection.partition is not None:
        wanted.append(f'"partition" = {selection.partition}')
    if selection.offset_from is not None:
        wanted.append(f'"offset" >= {selection.offset_from}')
    if selection.offset_to is not None:
        wanted.append(f'"offset" <= {selection.offset_to}')
    if selection.older_than_seconds is not None:
        wanted.append(f"failed_at <= '{_before(selection.older_than_seconds).isoformat()}'")
    return " and ".join(wanted)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _before(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def _dead_letter(row: dict[str, Any]) -> DeadLetter:
    at: datetime = row["failed_at"]
    timestamp: datetime = row["timestamp"]
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    message = Message(
        row["topic"],
        row["partition"],
        row["offset"],
        row["key"],
        row["value"],
        round(timestamp.timestamp() * 1000),
        headers,
    )
    [found] = as_dead_letters([message], None, TRIES, row["error"], "none", at.timestamp())
    return replace(found, id=f"{message.topic}:{message.partition}:{message.offset}")
