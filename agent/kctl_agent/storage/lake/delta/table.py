"""Opens, checks and changes a Delta table. kctl itself writes the commits of batches and compactions. delta-rs does
what needs the list of files, such as queries and vacuum."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.lake.delta.checkpoint import Checkpoints
from kctl_agent.storage.lake.delta.commit_actions import append_actions, compaction_actions
from kctl_agent.storage.lake.delta.files import DataFile, TableFile, check_days, table_files
from kctl_agent.storage.lake.delta.log import (
    LOG,
    LogUnreadable,
    actions,
    added,
    committed_at,
    log_files,
    read_again,
    write_entry,
)
from kctl_agent.storage.lake.delta.log_reader import DeltaLogReader
from kctl_agent.storage.lake.delta.log_state import LogState, NoTable
from kctl_agent.storage.lake.delta.schema import (
    add_columns,
    check_columns,
    check_features,
    check_rewritable,
    check_schema,
    new_columns,
    nullable,
)
from kctl_agent.storage.lake.folder import FOLDER, Folder

COMPACTIONS = "kctl/compactions"


class Overtaken(StorageUnusable, code="compaction_overtaken"):
    """Another writer changed the table before files could be replaced or removed. kctl left these files unchanged."""


@dataclass(slots=True)
class CompactionBasis:
    """The table's state before its files were listed, and the files removed since. Before each commit, `check` searches
    the log for conflicting changes. If two compactions replaced one file, its rows would be duplicated."""

    version: int
    committed_at: float | None
    metadata: Mapping[str, Any]
    number: int | None
    removed: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, table: Folder, state: LogState) -> CompactionBasis:
        number = state.transactions.get(COMPACTIONS)
        return cls(state.version, committed_at(table, state.version), state.metadata, number)

    @property
    def columns(self) -> pa.Schema:
        every = pa.schema(Schema.from_json(self.metadata["schemaString"]).to_arrow())
        return pa.schema([each for each in every if each.name not in self.metadata["partitionColumns"]])

    @property
    def transactions(self) -> dict[str, int]:
        return {COMPACTIONS: (self.number or 0) + 1}

    def check(self, table: Folder, state: LogState, names: Collection[str]) -> None:
        """Checks that a commit may replace the files `names`. Raises Overtaken, LogUnreadable."""
        if any(state.metadata[key] != self.metadata[key] for key in ("id", "schemaString", "partitionColumns")):
            raise Overtaken(f"the columns of the table {table} were changed meanwhile, or it was replaced by another")
        if committed_at(table, self.version) != self.committed_at:
            raise Overtaken(f"the table {table} went back: nothing was changed")
        if state.transactions.get(COMPACTIONS) != self.number:
            raise Overtaken(f"another process has compacted the table {table}: the rest was not compacted")
        for version in range(self.version + 1, state.version + 1):
            # Writers escape paths differently.
            self.removed |= {unquote(each["remove"]["path"]) for each in actions(table, version) if "remove" in each}
            self.version, self.committed_at = version, committed_at(table, version)
        if not self.removed.isdisjoint(names):
            raise Overtaken(f"another writer has changed the same files of {table}: nothing was changed")


ATTEMPTS = 5
"""How often to try a change: delta-rs does not rebase it on some commits of others, such as a new schema."""
COMMIT_SECONDS = 30.0


class LakeTable:
    """A Delta table. Thread-safe: a lock serializes reads and changes."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._log = DeltaLogReader(folder)
        self._is_checked = False
        self._fitting: tuple[Sequence[Mapping[str, Any]], Sequence[str]] | None = None
        self.commits_failed = 0
        self.commits_retried = 0
        self.checkpoints = Checkpoints(folder)

    def prepare(self) -> None:
        """Checks the folder, and the table if it exists. Raises StorageUnusable, TableRefused."""
        if not self._is_checked:
            self.folder.check()
            self.folder.check_create()
            self._is_checked = True
        if self.exists():
            with self.state() as state:
                check_features(self.folder, state)
            return
        with self.errors():
            is_taken = self.folder.holds_others({LOG, FOLDER})
        if is_taken:
            raise StorageUnusable(
                f"{self.folder} (storage.uri) is neither a Delta table nor empty: name another folder"
            )

    def fit(self, schema: str, partition_by: Sequence[str], *, merge_schema: bool = False) -> None:
        """Creates the table for this schema (Spark's JSON), or checks the existing table. With `merge_schema`, adds new
        columns. Raises TableRefused, StorageUnusable."""
        wanted = json.loads(schema)["fields"]
        check_columns(wanted, partition_by)
        if not self.exists():
            self._create(wanted, partition_by)
        with self.state() as state:
            check_features(self.folder, state)
            if merge_schema and (new := new_columns(state.fields, wanted)):
                check_schema(self.folder, state, [field for field in wanted if field not in new], partition_by)
                self._add_columns(wanted)
        with self.state() as state:
            check_schema(self.folder, state, wanted, partition_by)
            self._fitting = wanted, partition_by

    @contextmanager
    def state(self) -> Iterator[LogState]:
        with self._lock, self.errors():
            yield self._log.newest()

    @contextmanager
    def latest(self) -> Iterator[DeltaTable]:
        with self._lock, self.errors():
            self._log.newest()
            yield self._opened()

    def commit(
        self,
        id_: str,
        check: Callable[[LogState], None],
        transactions: Mapping[str, int],
        files: Sequence[DataFile] = (),
    ) -> None:
        """In one commit, adds `files` and writes `transactions` (name to number, as Delta's `txn` actions).

        `check` receives the state that directly precedes the commit, and raises an error to prevent the commit. Raises
        TableRefused if others have changed the table so that the files no longer fit. Raises StorageUnusable if the
        result is unknown, or if the table's id is no longer `id_`.
        """

        def decided(state: LogState) -> Iterator[dict[str, Any]]:
            if state.id != id_:
                raise StorageUnusable(f"the table {self.folder} was replaced by another while a batch was written")
            check_features(self.folder, state)
            if files and self._fitting is not None:
                check_schema(self.folder, state, *self._fitting)
            check_days(self.folder, files, state.partition_days)
            check(state)
            return append_actions(files, transactions, state.partition_columns, _now_ms())

        try:
            with self._lock, self.errors():
                self._write(decided)
        except (StorageUnusable, TableRefused):
            self.commits_failed += 1
            raise

    def _write(self, decided: Callable[[LogState], Iterator[dict[str, Any]]]) -> int:
        given_up_at = time.monotonic() + COMMIT_SECONDS  # the caller holds the lock
        while True:
            state = self._log.newest()
            if written := write_entry(self.folder, state.version + 1, decided(state)):
                break
            self.commits_retried += 1
            if time.monotonic() > given_up_at:
                raise StorageUnusable(f"other writers of the table {self.folder} always commit first")
        version = state.version + 1
        self.checkpoints.after(self._log.confirm(version, written), version)
        return version

    def rewritable_files(self) -> tuple[CompactionBasis, list[TableFile]]:
        with self.state() as state:
            check_rewritable(self.folder, state)
            basis = CompactionBasis.of(self.folder, state)
        with self.latest() as table:
            return basis, list(table_files(table))

    def replace(self, removed: Sequence[TableFile], added: Sequence[DataFile], basis: CompactionBasis) -> int:
        """Replaces files, and returns the new version. Without `added`, deletes the rows of `removed`. TableRefused and
        Overtaken mean that the table is unchanged. After other errors, only the log shows the result."""
        names = {unquote(file.path) for file in removed}

        def decided(state: LogState) -> Iterator[dict[str, Any]]:
            check_features(self.folder, state)
            basis.check(self.folder, state, names)
            return compaction_actions(removed, added, basis.transactions, _now_ms())

        with self._lock, self.errors():
            version = self._write(decided)
        basis.number = basis.transactions[COMPACTIONS]
        return version

    def rewrite(self, change: Callable[[DeltaTable], int]) -> int:
        """Runs `change`, an UPDATE or DELETE of delta-rs, and returns its result. Retries if another writer commits
        first. Raises StorageUnusable, TableRefused."""
        refused: Exception | None = None
        with self._lock, self.errors():
            for _ in range(ATTEMPTS):
                check_rewritable(self.folder, self._log.newest())
                table = self._opened()
                before = table.version()
                try:
                    count = change(table)
                except CommitFailedError as error:
                    refused = error
                    self.commits_retried += 1
                    continue
                for version in range(before + 1, table.version() + 1):
                    self.folder.sync(added(self.folder, version))  # delta-rs does not
                self._log.newest()
                return count
        raise StorageUnusable(f"other writers of the table {self.folder} came first {ATTEMPTS} times: {refused}")

    def exists(self) -> bool:
        with self.errors():  # without delta-rs, which holds the GIL until an object store answers
            if self._log.is_there():
                return True
            return log_files(self.folder).newest >= 0

    def _create(self, fields: Sequence[Mapping[str, Any]], partition_by: Sequence[str]) -> None:
        text = json.dumps(nullable({"type": "struct", "fields": fields}))
        try:
            schema = Schema.from_json(text)
        except Exception as error:  # delta-rs raises several for an unknown type
            raise TableRefused(f"a Delta table cannot have these columns: {error}") from error
        with self._lock, self.errors():
            for is_last in (False, True):
                try:
                    DeltaTable.create(
                        self.folder.uri,
                        schema,
                        partition_by=list(partition_by),
                        name=self.folder.name,
                        # Delta's 30 days are useless if replaced files are kept for seven.
                        configuration={"delta.logRetentionDuration": "interval 7 days"},
                        storage_options=self.folder.options,
                    )
                except DeltaError as error:
                    if self.exists():
                        return  # another worker was first
                    if is_last:  # otherwise it may be a conflict (409) that no writer won
                        raise StorageUnusable(
                            f"the table {self.folder} cannot be created: {self.folder.explain(error)}"
                        ) from error
                else:
                    return

    def _add_columns(self, wanted: Sequence[Mapping[str, Any]]) -> None:
        for _ in range(ATTEMPTS):
            new = new_columns(self._log.newest().fields, wanted)
            if not new:
                return
            try:
                add_columns(self._opened(), new)
            except CommitFailedError:  # another worker may have added the same
                continue
            except Exception as error:  # delta-rs raises several for an unfit type
                names = ", ".join(field["name"] for field in new)
                raise TableRefused(f"the table {self.folder} cannot be given the columns {names}: {error}") from error
        raise StorageUnusable(f"other writers of the table {self.folder} came first {ATTEMPTS} times")

    def _opened(self) -> DeltaTable:
        return read_again(lambda: DeltaTable(self.folder.uri, storage_options=self.folder.options), DeltaError)

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except (TableNotFoundError, NoTable) as error:
            raise StorageUnusable(
                f"there is no Delta table in {self.folder} (storage.uri): nothing was stored yet, or storage.uri "
                "names the wrong folder"
            ) from error
        except (DeltaError, LogUnreadable, OSError, pa.ArrowException) as error:
            raise StorageUnusable(f"the table {self.folder} cannot be used: {self.folder.explain(error)}") from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
