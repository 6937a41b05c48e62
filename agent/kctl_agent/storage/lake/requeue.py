"""Dead letters of a table on their way back: what was asked for, and the batch that carries it out.

Three steps, and after each commit of theirs every message is in one place, whatever is killed:

1. *The request*, by the command line, on the table of dead letters: the chosen rows get the next number in the column
   `requeue`. From then on they are no dead letters any more, and nothing but a worker removes them.
2. *The batch*, by a worker, on the main table: what the transform has made of all rows with higher numbers than the
   last batch's, and the number up to which it went. Whatever a second worker has made of them then is refused.
3. *The rest*, by that worker or the next one, on the table of dead letters: what the transform has marked again is
   added, then rows up to that number are removed. The files of the former were on the disk before the second commit,
   which names their folder: so the transform, which may be another one by then, is not asked again.

A cancellation is a batch too, without files: its third step takes the numbers away in place of the rows.

Rows of a batch whose own commit is still to come are waited for: it may be run again, and another transform may read
them then. Else partitions have no part in it: the rows come from a table, so any worker of the group may put them back,
whatever it is assigned. One at a time does (`Folder.lock`). All numbers are `txn` actions, named by the group.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from kctl_agent.messages import number_of
from kctl_agent.storage.base import Binding, StorageError, StorageUnusable, TopicPartition
from kctl_agent.storage.claim import Selection
from kctl_agent.storage.lake.files import DataFile, DayRefused, spark_schema, written_files
from kctl_agent.storage.lake.folder import FOLDER, Folder
from kctl_agent.storage.lake.numbered import (
    FIELDS,
    NUMBER,
    TRIES,
    count,
    fields,
    has_column,
    numbered,
    numbered_files,
    read,
)
from kctl_agent.storage.lake.offsets import dead_letter_owner, read_offset
from kctl_agent.storage.lake.plans import BATCH, Plan, forget
from kctl_agent.storage.lake.requeue_numbers import CANCELLED, RequeueNumbers, RequeueState, RequeueTaken, unmoved
from kctl_agent.storage.lake.selection import (
    READING,
    Condition,
    is_null,
    of_cluster,
    of_reading,
    predicate,
    reading,
)
from kctl_agent.storage.lake.storage import LakeStorage

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["BatchNotStored", "PutBack", "RequeueBatch", "RequeueTaken", "Requeues"]

log = logging.getLogger(__name__)

KEPT = f"{BATCH}requeue-"
"""How the folder of what stays dead begins; the rest of its name is a number of the second commit, in hexadecimal."""


class BatchNotStored(StorageError):
    """Dead letters are of a batch that has to be run again before they are put back."""

    code = "batch_not_stored"
    retriable = True


@dataclass(frozen=True, slots=True)
class PutBack:
    """What became of a batch of dead letters: of so many messages so many rows; `kept` of them are dead again."""

    messages: int
    rows: int
    kept: int

    def __str__(self) -> str:
        again = f"; {number_of(self.kept, 'message')} of them could not be read again" if self.kept else ""
        return (
            f"{number_of(self.messages, 'dead letter')} put back, {number_of(self.rows, 'row')} stored in the table"
            f"{again}"
        )


class Requeues:
    """The requests of one group of one cluster. For one thread at a time."""

    def __init__(self, lake: LakeStorage, dead: LakeStorage, owner: Binding) -> None:
        self._lake = lake
        self._dead = dead
        self.owner = owner
        self._numbers = RequeueNumbers(lake, dead, owner)
        self._settled: int | None = None
        """The request up to which nothing is left to be done: as long as it is the newest, one table is read."""

    def request(self, wanted: Condition) -> int:
        """Ask for the rows of this condition, unless somebody has; returns how many. Raises StorageUnusable,
        TableRefused."""
        self._dead.prepare()
        with self._dead.table.latest() as table:
            others = [field for field in fields(table) if field["name"] not in (NUMBER, TRIES, READING)]
        # Tables of earlier commits get the columns.
        self._dead.fit(json.dumps({"type": "struct", "fields": [*others, *FIELDS]}))
        return self._give_number(wanted & is_null(NUMBER), self._numbers.highest_put_back())

    def cancel(self) -> int:
        """Have those that were asked for, and that no worker has put back, be dead letters again; returns how many.

        A batch like any other, but for what its third step does. So the number in the main table comes first: from then
        on a worker that has begun without the lock, such as on another host, is refused, and the next one ends what is
        killed here.

        Raises RequeueTaken: a worker puts them back right now; StorageUnusable, TableRefused.
        """
        with self._alone(is_once=True):
            state = self._finished_state()
            if state.requested <= (state.stored or 0):
                return 0
            self._commit(state, CANCELLED, state.requested)
            return self._finish(self._numbers.state())

    def _give_number(self, wanted: Condition, stored: int) -> int:
        """Give these rows the next number, which is above `stored`; returns how many. Raises StorageUnusable."""

        def update(table: DeltaTable) -> int:
            from deltalake import CommitProperties, Transaction

            number = max(table.transaction_version(self._numbers.asked) or 0, stored) + 1
            properties = CommitProperties(app_transactions=[Transaction(self._numbers.asked, number)])
            metrics = table.update({NUMBER: str(number)}, predicate=wanted.sql, commit_properties=properties)
            return int(metrics["num_updated_rows"])

        return self._dead.table.rewrite(update)

    @contextmanager
    def next(self) -> Iterator[RequeueBatch | None]:
        """What is to be put back now, or None, for the time of this block: other workers wait. What a batch that was
        killed has left undone is done first.

        Raises:
            BatchNotStored, RequeueTaken: it may be put back later; another worker is at it.
            StorageUnusable, TableRefused: one of the two tables cannot be used.
        """
        if not self._dead.table.exists() or self._numbers.requested() == self._settled:
            yield None
            return
        with self._alone():
            state = self._finished_state()
            if state.requested > (state.stored or 0):
                yield self._begin(state)
            else:
                self._settled = state.requested
                yield None

    @contextmanager
    def _alone(self, *, is_once: bool = False) -> Iterator[None]:
        """Raises RequeueTaken: another process is at it; StorageUnusable, TableRefused."""
        folder = self._dead.folder
        with (folder.lock_once if is_once else folder.lock)(f"{FOLDER}/requeue.lock") as is_ours:
            if not is_ours:
                raise RequeueTaken(f"another worker puts dead letters of {self._dead.folder} back: try again later")
            self._dead.prepare()
            self._numbers.take_over()
            yield

    def _finished_state(self) -> RequeueState:
        """Once nothing is left undone of what is put back."""
        state = self._numbers.state()
        if (state.finished or 0) < (state.stored or 0) or 0 < state.requested <= (state.stored or 0):
            self._finish(state)
            state = self._numbers.state()
        return state

    def _finish(self, state: RequeueState) -> int:
        """The third step: what stays dead is added, then what is done is removed, so that nothing is ever missing. Of
        a cancellation all stays dead: returns how many. Raises RequeueTaken, StorageUnusable, TableRefused."""
        stored, released = state.stored or 0, 0
        if (state.finished or 0) < (state.above or 0):
            self._release(state.finished or 0, state.above or 0)
        if (state.finished or 0) < stored:
            if state.kept == CANCELLED:
                released = self._unnumber(state.above or 0, stored)
            self._add_kept(state, stored)

        def delete(table: DeltaTable) -> int:
            if not has_column(table, NUMBER):
                return 0
            return int(table.delete(numbered(self.owner, 0, stored).sql)["num_deleted_rows"])

        self._dead.table.rewrite(delete)
        return released

    def _release(self, finished: int, above: int) -> None:
        """The table of dead letters was restored from an older copy: each batch is finished before the next one. Which
        of these have stayed dead is not known any more. Raises StorageUnusable."""

        if released := self._unnumber(finished, above):
            log.warning(
                "%s of %s are dead letters again: they were put back since the copy was made that this table was "
                "restored from, and may be rows of the table already",
                number_of(released, "message"),
                self._dead.folder,
            )

    def _unnumber(self, above: int, up_to: int) -> int:
        """Have nobody ask for those of these requests; returns how many. Raises StorageUnusable."""

        def update(table: DeltaTable) -> int:
            if not has_column(table, NUMBER):
                return 0
            metrics = table.update({NUMBER: "null"}, predicate=numbered(self.owner, above, up_to).sql)
            return int(metrics["num_updated_rows"])

        return self._dead.table.rewrite(update)

    def _add_kept(self, state: RequeueState, stored: int) -> None:
        files: list[DataFile] = []
        kept = 0 if state.kept == CANCELLED else state.kept
        if kept:
            folder = self._kept_folder(kept)
            self._check_kept(folder, stored)
            files = written_files(self._dead.folder, folder) or []
            self._fit_kept(files)
        name = self._numbers.finished(state.table)
        self._dead.commit_files(state.dead, unmoved(name, state.finished), {name: stored}, files)
        if kept:
            forget(self._dead.folder, self._kept_folder(kept).name)

    def _fit_kept(self, files: Sequence[DataFile]) -> None:
        """Others may have changed the table since they were written, perhaps by a process of before. Raises
        StorageUnusable, TableRefused."""
        if files:
            with self._dead.table.errors():
                schema = spark_schema(self._dead.folder, files[0].path)
            if schema is not None:
                self._dead.fit(schema)

    def _check_kept(self, folder: Folder, stored: int) -> None:
        """Raises StorageUnusable: rows would be removed some of which are in a folder that is gone. A table that was
        replaced has neither."""
        with self._dead.table.errors():
            if folder.exists():
                return
        with self._dead.table.latest() as table:
            left = count(table, numbered(self.owner, 0, stored))[0] if has_column(table, NUMBER) else 0
        if left:
            raise StorageUnusable(
                f"{folder} is gone, with those of {number_of(left, 'dead letter')} that could not be read again: "
                "restore it from a copy; nothing was removed"
            )

    def _kept_folder(self, number: int) -> Folder:
        return self._dead.folder.below(f"{KEPT}{number:016x}")

    def commit(self, batch: RequeueBatch) -> PutBack:
        """The second commit, and the rest. Raises RequeueTaken, StorageUnusable."""
        state = batch.state
        files = _written(self._lake.folder, batch.folder, batch.rows, is_needed=batch.messages > 0)
        kept = _written(self._dead.folder, batch.kept_folder, batch.kept, is_needed=batch.is_keeping)
        try:
            self._commit(state, batch.kept_number if kept else 0, batch.number, files)
        except DayRefused:
            batch.discard()  # each try would leave its files
            raise
        forget(self._lake.folder, batch.folder.name)
        self._finish(self._numbers.state())
        forget(self._dead.folder, batch.kept_folder.name)
        return PutBack(batch.messages, sum(file.rows for file in files), sum(file.rows for file in kept))

    def _commit(self, state: RequeueState, kept: int, number: int, files: Sequence[DataFile] = ()) -> None:
        numbers = self._numbers.of_batch(number, kept, state.stored or 0)
        self._lake.commit_files(state.table, unmoved(self._numbers.put_back, state.stored), numbers, files)

    def _begin(self, state: RequeueState) -> RequeueBatch:
        above = state.stored or 0
        wanted = numbered(self.owner, above, state.requested)
        self._postpone(state, wanted)
        with self._dead.table.latest() as table:
            messages, copies = count(table, wanted)
            files = [self._dead.folder.below(name) for name in numbered_files(table)] if messages else []
        kept_number = secrets.randbits(62) + 1
        folder, kept_folder = self._lake.folder.below(f"{BATCH}{secrets.token_hex(16)}"), self._kept_folder(kept_number)
        finished = {self._numbers.finished(state.table): (state.finished, None)}
        Plan(state.version, {self._numbers.put_back: (state.stored, None)}).write(self._lake.folder, folder.name)
        Plan(state.dead_version, finished).write(self._dead.folder, kept_folder.name)
        return RequeueBatch(self, state, messages, copies, files, folder, kept_number, kept_folder)

    def _postpone(self, state: RequeueState, wanted: Condition) -> None:
        """Give those that wait for their batch the next number, so that others need not wait. Raises BatchNotStored:
        there are no others."""
        with self._dead.table.latest() as table:
            waiting = self._waiting(table, state.table, wanted)
            if not waiting:
                return
            which = wanted & reduce(or_, (each for _, _, each in waiting))
            are_all = count(table, which)[0] == count(table, wanted)[0]
        if are_all:
            (topic, partition), offset = min((tp, offset) for tp, offset, _ in waiting)
            raise BatchNotStored(
                f"dead letters of {topic}-{partition} from offset {offset} on are of a batch that is not stored yet; "
                "they are put back once it is"
            )
        self._give_number(which, state.stored or 0)

    def _waiting(
        self, dead: DeltaTable, table_id: str, wanted: Condition
    ) -> list[tuple[TopicPartition, int, Condition]]:
        """Those that are wanted and lie between the stored offset of the group and that of dead letters: the partition,
        the former, and what selects them."""
        columns = ["cluster", "topic", "partition"]
        found = read(dead, columns, wanted).group_by(columns).aggregate([]).to_pylist()
        ahead: list[tuple[TopicPartition, int, Condition]] = []
        with self._lake.table.state() as table, self._dead.table.state() as of_dead:
            for row in found:
                tp, cluster = (row["topic"], row["partition"]), row["cluster"]
                stored = read_offset(table.transaction_version, Binding(self.owner.group, cluster), tp)
                there = read_offset(
                    of_dead.transaction_version, dead_letter_owner(self.owner.group, table_id, cluster), tp
                )
                if stored is None or there is None or stored.version != there.version or there.next <= stored.next:
                    continue
                between = predicate(self.owner.group, Selection(*tp, stored.next, there.next - 1))
                if has_column(dead, READING):  # others' of these offsets are of a topic before it was recreated
                    between &= of_reading(reading(table_id, stored.version))
                ahead.append((tp, stored.next, between & of_cluster(cluster)))
        return [each for each in ahead if count(dead, wanted & each[2])[0]]


class RequeueBatch:
    """Dead letters that go through the transform once more.

    `messages` of this `owner`, with numbers `above` and up to `number`, are in `files` of the table of dead letters,
    among others. Of one that was read several times (after a seek, or from a topic that was recreated) there are so
    many `copies` at the most. Rows go into `folder`, and what stays dead, as rows of the table of dead letters, into
    `kept_folder`.
    """

    def __init__(
        self,
        requeues: Requeues,
        state: RequeueState,
        messages: int,
        copies: int,
        files: list[Folder],
        folder: Folder,
        kept_number: int,
        kept_folder: Folder,
    ) -> None:
        self.state = state
        self.owner = requeues.owner
        self.above = state.stored or 0
        self.number = state.requested
        self.messages = messages
        self.copies = copies
        self.files = files
        self.folder = folder
        self.kept_number = kept_number
        self.kept_folder = kept_folder
        self.is_keeping = False
        """Something was written into `kept_folder`."""
        self.rows: int | None = None
        """So many were written into `folder`; None: nobody has counted them."""
        self.kept: int | None = None
        """So many were written into `kept_folder`."""
        self._requeues = requeues

    def commit(self) -> PutBack:
        """What was written becomes part of both tables. Raises RequeueTaken: nothing of it is visible; StorageUnusable:
        whether it is, shows the next batch."""
        return self._requeues.commit(self)

    def discard(self) -> None:
        """Remove what was written before anything was committed. Tasks that were given up may still write: the plans
        stay, by which the rest is found."""
        self.folder.remove_all()
        self.kept_folder.remove_all()


def _written(table: Folder, folder: Folder, rows: int | None, *, is_needed: bool) -> list[DataFile]:
    """Raises StorageUnusable."""
    files = written_files(table, folder, rows)
    if files is None and is_needed:
        raise StorageUnusable(f"{folder}, what was made of dead letters, is gone: nothing of it was stored")
    return files or []
