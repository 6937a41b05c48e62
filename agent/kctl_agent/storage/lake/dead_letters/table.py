"""Messages that a transform could not read, as rows of a second Delta table next to the main table.

One commit cannot change two tables. So a batch first commits its dead letters to this table, which has its own
stored offsets. Afterwards it commits its rows and the group's stored offsets to the main table. If the second commit
fails, the next try finds the dead letters (`earlier_try`), and transforms only other messages. So each message is in
exactly one table, even if the transform changes between the tries.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby, islice

from deltalake import DeltaTable

from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.base import PAGE, DeadLetterStore, Progress, Step, read_page, silent
from kctl_agent.storage.chunk import Binding, StoredOffset, TopicPartition
from kctl_agent.storage.claim import DeadLetter, DeadLetterGroup, DeadLetterPage, check_count, grouped
from kctl_agent.storage.lake.dead_letters.requeue import Requeues
from kctl_agent.storage.lake.dead_letters.search import MOST_ROWS, Origin, RowPlace, all_rows, next_rows, of_rows, read
from kctl_agent.storage.lake.dead_letters.selection import (
    NUMBER,
    READING,
    Condition,
    is_null,
    needs_rows,
    of_cluster,
    predicate,
    reading,
    than,
)
from kctl_agent.storage.lake.delta.log import own_file
from kctl_agent.storage.lake.delta.table import Overtaken
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.table_storage import LakeBatch, Move, TableStorage
from kctl_agent.storage.selection import EVERYTHING, Selection, is_id_number

SENT = 500


@dataclass(frozen=True, slots=True)
class EarlierTry:
    """An earlier try that committed dead letters up to `stored`, but no rows."""

    stored: Mapping[TopicPartition, StoredOffset] = field(default_factory=dict)
    messages: tuple[tuple[str, int, int], ...] = ()  # topic, partition and offset of each dead letter


class DeadLetterTable(DeadLetterStore):
    def __init__(self, lake: TableStorage, group: str, ask_cluster: Callable[[], str | None] | None = None) -> None:
        """`ask_cluster` returns the id of the group's current Kafka cluster. If the group has stored offsets of several
        clusters, dead letters of the other clusters are requeued only without `ask_cluster`."""
        self.group = group
        self._lake = lake
        self._ask_cluster = ask_cluster
        self.storage = lake.dead_letter_table()

    @cached_property
    def requeues(self) -> Requeues:
        return Requeues(self._lake, self.storage, Binding(self.group, self._lake.cluster_id))

    @property
    def identity(self) -> str:
        return self.storage.identity

    @property
    def folder(self) -> Folder:
        return self.storage.folder

    def earlier_try(self, batch: LakeBatch) -> EarlierTry:
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
        return reading(batch.table_id, batch.moves[tp][1].version)

    def _offsets(self, selection: Selection, reading: str) -> set[int]:
        wanted = predicate(self.group, selection) & of_cluster(self._lake.owner.cluster_id)
        wanted &= than(READING, "=", reading)
        with self.storage.table.latest() as table:
            return set(read(table, ["offset"], wanted)["offset"].to_pylist())

    def begin(self, batch: LakeBatch, schema: str, earlier: EarlierTry) -> LakeBatch:
        """Prepares the commit of the dead letters of `batch`: returns a second batch, for this table. From then on, no
        other batch planned earlier for the same partitions can commit. Raises StorageUnusable, TableRefused.
        Raises StoredOffsetMoved if another process has moved or claimed the stored offsets."""
        self.storage.prepare()
        self.storage.fit(schema)
        id_ = self._bind(batch)
        with self.storage.table.state() as table:
            version = table.version
        self._lake.claim(batch)  # after the table exists: another batch's claim then fences it
        return self.storage.plan(id_, version, _moves(batch, earlier), {})

    def fence(self, batch: LakeBatch, earlier: EarlierTry) -> bool:
        """Stops processes that planned a batch earlier, such as frozen former owners, from committing dead letters. If
        the table does not exist, returns False: they can still create it. Raises StoredOffsetMoved, StorageUnusable."""
        if not self.storage.table.exists():
            return False
        self.storage.commit(_moves(batch, earlier), id_=self._bind(batch))
        return True

    def _bind(self, batch: LakeBatch) -> str:
        owner = self._lake.owner
        # With the main table's id, so that these stored offsets start again if that table is replaced.
        return self.storage.bind(Binding(f"{owner.group} {batch.table_id}", owner.cluster_id))

    def dead_page(
        self,
        selection: Selection = EVERYTHING,
        after: str | None = None,
        limit: int = PAGE,
        seconds: float | None = None,
    ) -> DeadLetterPage:
        selection = selection.dated(time.time())
        place = None if after is None else RowPlace.parsed(after)
        return read_page(partial(self._step, selection), selection.takes_dead_letter, place, limit, seconds)

    def dead(
        self, selection: Selection = EVERYTHING, limit: int | None = None, progress: Progress = silent
    ) -> Iterator[DeadLetter]:
        if limit is not None:
            yield from super().dead(selection, limit, progress)
        else:
            yield from (dead_letter for _, dead_letter in self.rows(selection, progress, with_payload=True))

    def rows(
        self, selection: Selection, progress: Progress = silent, *, with_payload: bool = False
    ) -> Iterator[tuple[Origin, DeadLetter]]:
        if self.storage.table.exists():
            selection = selection.dated(time.time())
            with self.storage.table.latest() as table:
                yield from all_rows(table, self._condition(selection), selection, progress, with_payload=with_payload)

    def _step(self, selection: Selection, after: RowPlace | None, limit: int) -> Step[RowPlace]:
        if not self.storage.table.exists():
            return (), None
        wanted = PAGE if needs_rows(selection) else limit
        with self.storage.table.latest() as table:
            rows = next_rows(table, self._condition(selection), after, wanted)
        return rows, rows[-1][0] if len(rows) == wanted else None

    def find_dead(self, id: str) -> DeadLetter | None:  # noqa: A002
        """Finds a dead letter by its id, `TOPIC:PARTITION:OFFSET`. If several have this id, returns the newest."""
        topic, *place = id.rsplit(":", 2)
        if len(place) != 2 or not all(map(is_id_number, place)):
            return None
        partition, offset = map(int, place)
        found = self.dead(Selection(topic, partition, offset, offset))
        return max(found, key=lambda each: each.at, default=None)

    def dead_groups(
        self, selection: Selection = EVERYTHING, hours: int = 0, progress: Progress = silent
    ) -> list[DeadLetterGroup]:
        return grouped((dead_letter for _, dead_letter in self.rows(selection, progress)), hours, time.time())

    def count_requeued(self) -> int:
        return len(self._clusters_requeued())

    def requeue_dead(
        self, selection: Selection = EVERYTHING, expect: int | None = None, progress: Progress = silent
    ) -> int:
        ask = self._ask_cluster
        owners = self._lake.group_offsets(self.group) if ask is not None and self.storage.table.exists() else []
        if ask is None or len({owner.cluster_id for owner, _ in owners}) < 2:
            return self._changed(selection, expect, progress, self.requeues.request)
        # No worker would transform dead letters of a cluster that the group no longer reads.
        cluster, selection = ask(), selection.dated(time.time())
        count = self._changed(selection, expect, progress, self.requeues.request, of_cluster(cluster))
        if left := sum(origin.cluster != cluster for origin, _ in self.rows(selection, progress)):
            self.note = f"; {number_of(left, 'dead letter')} of another cluster left"
        return count

    def cancel_requeued(self) -> int:
        """Cancels pending requeues. Returns the number of dead letters. Raises RequeueTaken, StorageUnusable."""
        clusters = set(self._clusters_requeued())
        return sum(Requeues(self._lake, self.storage, Binding(self.group, each)).cancel() for each in clusters)

    def remove_dead(
        self, selection: Selection = EVERYTHING, expect: int | None = None, progress: Progress = silent
    ) -> int:
        return self._changed(selection, expect, progress, self._deleted)

    def move_dead(
        self,
        send: Callable[[list[DeadLetter]], list[DeadLetter]],
        selection: Selection = EVERYTHING,
        expect: int | None = None,
        progress: Progress = silent,
    ) -> int:
        if not self.storage.table.exists():
            return check_count(0, expect)
        selection, done = selection.dated(time.time()), 0
        condition = self._condition(selection)
        with self.storage.table.latest() as table:
            if expect is not None:
                check_count(sum(1 for _ in all_rows(table, condition, selection, progress)), expect)
            rows = all_rows(table, condition, selection, silent, with_payload=True)
            for _, of_file in groupby(rows, lambda each: each[0].file):
                gone: list[Origin] = []
                try:
                    while page := list(islice(of_file, SENT)):
                        progress(done + len(gone))
                        there = {id(each) for each in send([each for _, each in page])}
                        gone += [origin for origin, each in page if id(each) in there]
                finally:
                    done += self._remove_rows(condition, gone)
                progress(done)
        return done

    def expire(self) -> int:
        """Removes files whose rows are all expired dead letters of this group. Returns the number of rows."""
        age = self._lake.limits.dead_seconds
        rows = () if age is None else self.rows(Selection(older_than_seconds=age))
        return self._remove_files(Counter(origin.file for origin, _ in rows))

    def _remove_rows(self, condition: Condition, rows: Sequence[Origin]) -> int:
        with suppress(Overtaken):
            if count := self._remove_files(Counter(each.file for each in rows)):
                return count
        parts = (of_rows(rows[start : start + MOST_ROWS]) for start in range(0, len(rows), MOST_ROWS))
        return sum(self._deleted(_always(f"{condition.sql} and {part}")) for part in parts)

    def _remove_files(self, rows: Counter[str]) -> int:
        basis, files = self.storage.table.rewritable_files() if rows else (None, [])
        # Files of which all rows are to be removed. A DELETE would rewrite them.
        whole = [each for each in files if each.rows is not None and each.rows == rows[own_file(each.path)]]
        if basis is not None and whole:
            self.storage.table.replace(whole, (), basis)
        return sum(each.rows or 0 for each in whole)

    def _deleted(self, choose: Callable[[DeltaTable], str]) -> int:
        return self.storage.table.rewrite(lambda table: int(table.delete(choose(table))["num_deleted_rows"]))

    def _changed(
        self,
        selection: Selection,
        expect: int | None,
        progress: Progress,
        change: Callable[[Callable[[DeltaTable], str]], int],
        besides: Condition | None = None,
    ) -> int:
        if not self.storage.table.exists():
            return check_count(0, expect)
        selection = selection.dated(time.time())

        # `change` commits on the version in which the rows are counted, so it changes exactly these.
        def choose(table: DeltaTable) -> str:
            condition = self._condition(selection) if besides is None else self._condition(selection) & besides
            if expect is None and not needs_rows(selection):
                return condition.sql
            matching = all_rows(table, condition, selection, progress)
            if not needs_rows(selection):
                check_count(sum(1 for _ in matching), expect)
                return condition.sql
            rows = [origin for origin, _ in islice(matching, MOST_ROWS + 1)]
            chosen = of_rows(rows)
            check_count(len(rows), expect)
            return f"{condition.sql} and {chosen}"

        count = change(choose)
        progress(count)
        return count

    def _condition(self, selection: Selection) -> Condition:
        return predicate(self.group, selection) & is_null(NUMBER)

    def _clusters_requeued(self) -> list[str | None]:
        if not self.storage.table.exists():
            return []
        wanted = predicate(self.group, EVERYTHING) & than(NUMBER, ">", 0)
        with self.storage.table.latest() as table:
            return list(read(table, ["cluster"], wanted)["cluster"].to_pylist())


def _always(sql: str) -> Callable[[DeltaTable], str]:
    return lambda _: sql


def _stored_before(there: StoredOffset | None, before: StoredOffset) -> int:
    return there.next if there is not None and there.version == before.version else 0


def _moves(batch: LakeBatch, earlier: EarlierTry) -> dict[TopicPartition, Move]:
    # A new id for each commit shows whether another process was first. Offsets do not, if an earlier try moved them.
    token = str(uuid.uuid4())
    moves: dict[TopicPartition, Move] = {}
    for tp, (before, after) in batch.moves.items():
        there = earlier.stored.get(tp)
        at = _stored_before(there, before) if before is not None else 0
        moves[tp] = there, replace(after, next=max(after.next, at), topic_id=token)
    return moves
