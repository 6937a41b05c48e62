"""Requeues dead letters of a table, from the request to the batch that executes it.

A requeue has three steps. Even if a process is killed, no message is lost or becomes two dead letters.

1. *The request*: the command line commits to the dead-letter table. The chosen rows get the next number in the column
   `requeue`, and no longer count as dead letters.
2. *The batch*: a worker transforms the rows of all requests that are not in an earlier batch. Rows that fail again
   become new dead letters: the worker writes them to a folder with a random number in its name. It commits the results,
   the random number and the newest request's number to the main table.
3. *The clean-up*: the worker commits the folder's dead letters to the dead-letter table. A second commit removes the
   requeued rows. If the worker is killed, the next worker or a cancellation makes both commits.

A cancellation is a batch without files. Its step 3 keeps the rows, and clears their `requeue`.

Dead letters can be requeued only after the batch that wrote them is committed. Until then, the batch may run again with
another transform, which may succeed.

If several processes try step 2 or 3, only one succeeds: each commit increases a number (a `txn` action named after the
group), and fails if another process has increased it first.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction

from kctl_agent.errors import StorageError
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.chunk import Binding
from kctl_agent.storage.lake.dead_letters.search import COORDINATES, read
from kctl_agent.storage.lake.dead_letters.selection import NUMBER, READING, Condition, of_cluster, reading, than
from kctl_agent.storage.lake.delta.batch_plans import BATCH, BatchPlan, forget
from kctl_agent.storage.lake.delta.files import DataFile, DayRefused, Written, spark_schema, written_files
from kctl_agent.storage.lake.delta.log import own_file
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.delta.offsets import read_offset
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.table_storage import TableStorage

KEPT = f"{BATCH}requeue-"
"""Starts the folder's name for remaining dead letters. A hexadecimal number in the second commit completes it."""
PUT_BACK = "kctl/requeued/"
CANCELLED = -1  # replaces the name of the folder for remaining dead letters, if all of them remain


class RequeueTaken(StorageError, code="requeue_taken", retriable=True):
    """Another process has requeued the dead letters of a table, or cancelled the requeue. Nothing was written."""


@dataclass(frozen=True, slots=True)
class RequeueState:
    """What the main and the dead-letter table record about requests. `table` and `dead` are the ids of these tables,
    `version` and `dead_version` their versions. All other fields except `kept` are request numbers (0: no request)."""

    table: str
    version: int
    stored: int
    """The request up to which rows are in the table; `kept` names the folder of the remaining dead letters, or is
    CANCELLED."""
    kept: int
    above: int
    dead: str
    dead_version: int
    requested: int
    finished: int


def _of_batch(name: str) -> tuple[str, str, str]:
    return name, f"{name}/kept", f"{name}/above"


def unmoved(name: str, before: int) -> Callable[[LogState], None]:
    def check(table: LogState) -> None:
        if table.transactions.get(name, 0) != before:
            raise RequeueTaken(
                "another process has requeued these dead letters, or cancelled the requeue; nothing was written"
            )

    return check


def numbered(owner: Binding, above: int, up_to: int) -> Condition:
    of_owner = than("group", "=", owner.group) & of_cluster(owner.cluster_id)
    return of_owner & than(NUMBER, ">", above) & than(NUMBER, "<=", up_to)


def count(table: DeltaTable, wanted: Condition) -> tuple[int, int]:
    found = read(table, COORDINATES, wanted)
    copies = found.group_by(COORDINATES).aggregate([([], "count_all")])["count_all"]
    return found.num_rows, pc.max(copies).as_py() or 0


def numbered_files(table: DeltaTable) -> list[str]:
    actions = table.get_add_actions(flatten=True)
    nulls = f"null_count.{NUMBER}"
    columns = ["path", "num_records", *([nulls] if nulls in actions.schema.names else [])]
    files = zip(*(actions.column(name).to_pylist() for name in columns), strict=True)
    return [own_file(name) for name, *counts in files if None in counts or len(counts) < 2 or counts[0] != counts[1]]


class BatchNotStored(StorageError, code="batch_not_stored", retriable=True):
    """Dead letters belong to a batch that is not committed yet. A worker requeues them once the batch is committed."""


@dataclass(frozen=True, slots=True)
class PutBack:
    messages: int
    rows: int
    kept: int

    def __str__(self) -> str:
        again = f"; {number_of(self.kept, 'message')} of them could not be read again" if self.kept else ""
        return (
            f"{number_of(self.messages, 'dead letter')} requeued, {number_of(self.rows, 'row')} stored in the table"
            f"{again}"
        )


class Requeues:
    """The requeue requests of one group and cluster, recorded as numbers in `txn` actions of both tables. A group has
    one sequence of numbers for all clusters. For one thread at a time."""

    def __init__(self, lake: TableStorage, dead: TableStorage, owner: Binding) -> None:
        self._lake = lake
        self._dead = dead
        self.owner = owner
        self._group = quote(owner.group, safe="")
        self._asked = f"kctl/requeue/{self._group}"
        self._put_back = f"{PUT_BACK}{quote(owner.cluster_id or '-', safe='')}/{self._group}"
        self._settled: int | None = None
        """The request up to which nothing is left to do: while it is the newest, only one table is read."""

    def request(self, choose: Callable[[DeltaTable], str]) -> int:
        """Requests a requeue of rows, and returns how many. `choose` returns an SQL condition, which must exclude rows
        that already have a request."""
        stored = self._highest_put_back()

        def update(table: DeltaTable) -> int:
            # `stored` is higher only if the dead-letter table was replaced.
            number = max(table.transaction_version(self._asked) or 0, stored) + 1
            properties = CommitProperties(app_transactions=[Transaction(self._asked, number)])
            metrics = table.update({NUMBER: str(number)}, predicate=choose(table), commit_properties=properties)
            return int(metrics["num_updated_rows"])

        return self._dead.table.rewrite(update)

    def cancel(self) -> int:
        """Cancels requests that no worker has executed yet, and returns the number of rows. Raises RequeueTaken. The
        next call of `cancel` or `next` completes an interrupted cancellation."""
        state = self._finished_state()
        if state.requested <= state.stored:
            return 0
        with self._dead.table.latest() as table:
            messages, _ = count(table, numbered(self.owner, state.stored, state.requested))
        self._commit(state, CANCELLED, state.requested)  # a worker that is requeuing these rows cannot commit now
        self._finish_now()
        return messages

    def next(self) -> RequeueBatch | None:
        """Returns the next batch of requested dead letters, or None. If a worker was killed before step 3, first runs
        that step. Raises BatchNotStored, RequeueTaken, StorageUnusable, TableRefused."""
        if not self._dead.table.exists():
            return None
        with self._dead.table.state() as table:
            if table.transactions.get(self._asked, 0) == self._settled:
                return None
        state = self._finished_state()
        if state.requested > state.stored:
            return self._begin(state)
        self._settled = state.requested
        return None

    def _state(self) -> RequeueState:
        with self._lake.table.state() as table:
            of_lake = (table.id, table.version)
            stored, kept, above = (table.transactions.get(name, 0) for name in _of_batch(self._put_back))
        with self._dead.table.state() as table:
            numbers = (table.transactions.get(name, 0) for name in (self._asked, self._finished(of_lake[0])))
            return RequeueState(*of_lake, stored, kept, above, table.id, table.version, *numbers)

    def _finished(self, table_id: str) -> str:
        return f"{self._put_back}/{table_id}"  # its number is the last request whose step 3 is finished

    def _highest_put_back(self) -> int:
        with self._lake.table.state() as table:
            numbers = {name: number for name, number in table.transactions.items() if name.startswith(PUT_BACK)}
        of_group = (number for name, number in numbers.items() if name.split("/")[3:] == [self._group])
        return max(of_group, default=0)

    def _finished_state(self) -> RequeueState:
        state = self._state()
        if state.finished < state.stored or 0 < state.requested <= state.stored:
            self._finish(state)
            state = self._state()
        return state

    def _finish(self, state: RequeueState) -> None:
        if state.finished < state.stored:
            # Only a table restored from an older copy has rows of earlier batches: they become dead letters again.
            self._unnumber(state.finished, state.stored if state.kept == CANCELLED else state.above)
            self._add_kept(state)  # before the removal, so that no dead letter is missing in between
        done = numbered(self.owner, 0, state.stored).sql
        self._dead.table.rewrite(lambda table: int(table.delete(done)["num_deleted_rows"]))

    def _finish_now(self) -> None:
        with suppress(RequeueTaken):  # another process has finished it
            self._finish(self._state())

    def _unnumber(self, above: int, up_to: int) -> None:
        if above >= up_to:
            return
        which = numbered(self.owner, above, up_to).sql
        self._dead.table.rewrite(lambda table: int(table.update({NUMBER: "null"}, predicate=which)["num_updated_rows"]))

    def _add_kept(self, state: RequeueState) -> None:
        files: list[DataFile] = []
        folder = self._kept_folder(state.kept) if state.kept > 0 else None
        if folder is not None:
            self._check_kept(folder, state.stored)
            files = written_files(self._dead.folder, folder, Written.noted(folder)) or []
            self._fit_kept(files)
        name = self._finished(state.table)
        self._dead.table.commit(state.dead, unmoved(name, state.finished), {name: state.stored}, files)
        if folder is not None:
            forget(self._dead.folder, folder.name)

    def _fit_kept(self, files: Sequence[DataFile]) -> None:
        if files:
            with self._dead.table.errors():
                schema = spark_schema(self._dead.folder, files[0].path)
            if schema is not None:
                self._dead.fit(schema)

    def _check_kept(self, folder: Folder, stored: int) -> None:
        with self._dead.table.errors():
            if folder.exists():
                return
        # Without the folder, the next step would lose the rows that failed again.
        with self._dead.table.latest() as table:
            left, _ = count(table, numbered(self.owner, 0, stored))
        if left:
            raise StorageUnusable(
                f"{folder} is gone, with those of {number_of(left, 'dead letter')} that could not be read again: "
                "restore it from a copy; nothing was removed"
            )

    def _kept_folder(self, number: int) -> Folder:
        return self._dead.folder.subfolder(f"{KEPT}{number:016x}")

    def commit(self, batch: RequeueBatch) -> PutBack:
        state = batch.state
        files = _written(self._lake.folder, batch.folder, batch.rows, is_needed=batch.messages > 0)
        kept = _written(self._dead.folder, batch.kept_folder, batch.kept, is_needed=batch.kept is not None)
        if batch.kept is not None:
            batch.kept.note(self._dead.folder, batch.kept_folder)
        try:
            self._commit(state, batch.kept_number if kept else 0, state.requested, files)
        except DayRefused:
            batch.discard()  # each try would leave its files
            raise
        forget(self._lake.folder, batch.folder.name)
        self._finish_now()
        forget(self._dead.folder, batch.kept_folder.name)
        return PutBack(batch.messages, sum(file.rows for file in files), sum(file.rows for file in kept))

    def _commit(self, state: RequeueState, kept: int, number: int, files: Sequence[DataFile] = ()) -> None:
        numbers = dict(zip(_of_batch(self._put_back), (number, kept, state.stored), strict=True))
        self._lake.table.commit(state.table, unmoved(self._put_back, state.stored), numbers, files)

    def _begin(self, state: RequeueState) -> RequeueBatch:
        wanted = numbered(self.owner, state.stored, state.requested)
        with self._dead.table.latest() as table:
            self._check_stored(table, state.table, wanted)
            messages, copies = count(table, wanted)
            files = [self._dead.folder.subfolder(name) for name in numbered_files(table)] if messages else []
        kept_number = secrets.randbits(62) + 1
        folder, kept_folder = (
            self._lake.folder.subfolder(f"{BATCH}{secrets.token_hex(16)}"),
            self._kept_folder(kept_number),
        )
        finished = {self._finished(state.table): state.finished or None}
        BatchPlan(state.version, {self._put_back: state.stored or None}).write(self._lake.folder, folder.name)
        BatchPlan(state.dead_version, finished).write(self._dead.folder, kept_folder.name)
        return RequeueBatch(self, state, messages, copies, files, folder, kept_number, kept_folder)

    def _check_stored(self, dead: DeltaTable, table_id: str, wanted: Condition) -> None:
        columns = ["topic", "partition", READING]
        found = read(dead, [*columns, "offset"], wanted).group_by(columns).aggregate([("offset", "max")])
        with self._lake.table.state() as table:
            for row in found.to_pylist():
                topic, partition = row["topic"], row["partition"]
                stored = read_offset(table.transactions.get, self.owner, (topic, partition))
                if stored is None or row[READING] != reading(table_id, stored.version):
                    continue
                if row["offset_max"] >= stored.next:
                    raise BatchNotStored(
                        f"dead letters of {topic}-{partition} from offset {stored.next} on belong to a batch that is "
                        "not stored yet; they are requeued once the batch is stored"
                    )


@dataclass(eq=False)
class RequeueBatch:
    """The dead letters of the requests after `state.stored` up to `state.requested`, to transform again.

    `messages` is their number. `files` also contain other dead letters. `copies` is the highest number of dead letters
    with the same topic, partition and offset. After a seek or a recreated topic, `copies` may exceed 1.
    """

    requeues: Requeues
    state: RequeueState
    messages: int
    copies: int
    files: list[Folder]
    folder: Folder
    kept_number: int
    kept_folder: Folder
    rows: Written | None = None
    kept: Written | None = None

    def commit(self) -> PutBack:
        """Commits the new rows to the main table, then cleans up (step 3). Raises RequeueTaken if another process was
        faster. Raises TableRefused or StorageUnusable. After StorageUnusable, the rows may be stored."""
        return self.requeues.commit(self)

    def discard(self) -> None:
        self.folder.remove_all()
        self.kept_folder.remove_all()


def _written(table: Folder, folder: Folder, written: Written | None, *, is_needed: bool) -> list[DataFile]:
    files = written_files(table, folder, written)
    if files is None and is_needed:
        raise StorageUnusable(f"{folder}, with rows made of dead letters, is gone: nothing of it was stored")
    return files or []
