"""An Iceberg table of a catalog, whose files are in a folder of this machine, by way of pyiceberg.

Each commit names the snapshot of `main` that it was decided on, and the catalog refuses it where that is no longer the
newest. Then the table is read anew: what others have committed meanwhile (rows, deletes, a compaction, another group)
is no hindrance as long as the numbers that the commit was decided on are still there.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kctl_agent.storage.base import StorageError, StorageUnusable
from kctl_agent.storage.lake.base import TableState
from kctl_agent.storage.lake.files import DataFile
from kctl_agent.storage.lake.folder import FOLDER as PLANS
from kctl_agent.storage.lake.folder import Folder, TableRefused
from kctl_agent.storage.lake.iceberg import expiry
from kctl_agent.storage.lake.iceberg.catalog_file import catalog_file, check_catalog_folder
from kctl_agent.storage.lake.iceberg.commit_lock import commit_lock
from kctl_agent.storage.lake.iceberg.numbers import FOLDER, SEQUENCE_NUMBER, added_by, pack, read_numbers
from kctl_agent.storage.lake.iceberg.schema import (
    check_columns,
    check_schema,
    iceberg_type,
    new_columns,
    partition_columns,
    partition_spec,
    schema,
)
from kctl_agent.storage.lake.iceberg.secrets import without_secrets
from kctl_agent.storage.room import TableCounts

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadataV2

    from kctl_agent.storage.lake.iceberg.catalog import OwnCatalog

__all__ = ["CATALOGS", "IcebergState", "IcebergTable"]

CATALOGS = ("sql", "rest")
COMMIT_SECONDS = 30.0
"""For so long a commit is tried again where others come first."""
ATTEMPTS = 5
"""Of a change of columns, likewise."""
NAME_MAPPING = "schema.name-mapping.default"
PROPERTIES = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    **expiry.PROPERTIES,
}
"""Of a table that is made here: each commit adds a manifest and a file of metadata, which else stay for ever."""


class IcebergState:
    """A version of an Iceberg table, without its files. Raises ValueError: somebody has changed what kctl has
    written."""

    def __init__(self, metadata: TableMetadataV2) -> None:
        self.version = metadata.last_sequence_number
        self.id = str(metadata.table_uuid)
        self.numbers = read_numbers(metadata)

    def transaction_version(self, name: str) -> int | None:
        return self.numbers.get(name)

    def transaction_names(self) -> list[str]:
        return sorted(self.numbers)


class IcebergTable:
    """See `lake.base.Table`. `catalog` are properties of pyiceberg, `name` is the table's in it, such as
    `sales.orders`."""

    def __init__(self, folder: Folder, name: str, catalog: Mapping[str, str], *, is_expiring: bool = True) -> None:
        """With `is_expiring` commits also expire old snapshots of ours (`expiry`)."""
        if folder.local is None:
            raise TableRefused(f"storage.uri is {folder}, and an Iceberg table must be in a folder of this machine")
        self.folder = folder
        self.path = folder.local
        self.name = name
        self._properties = dict(catalog)
        self._is_expiring = is_expiring
        self._lock = threading.RLock()
        """Of those who change the table: one thread would only come before the other."""
        self._opening = threading.Lock()
        self._catalog: OwnCatalog | None = None
        self._fitting: tuple[Sequence[Mapping[str, Any]], Sequence[str]] | None = None
        """The columns and partitions that the table was last found to take."""
        self.commits_retried = 0

    def prepare(self) -> None:
        self.check_folders()
        with self.errors():
            if self.exists():
                self._check(self._load())
            elif self.folder.holds_others({"metadata", PLANS}):  # of a table that another worker makes at this moment
                raise StorageUnusable(
                    f"{self.path} (storage.uri) is not empty, and the catalog has no table {self.name}: name another "
                    "folder, or the table that it is of"
                )

    def check_folders(self) -> None:
        """Those that it is to be made in, and its catalog. Raises StorageUnusable, TableRefused."""
        self.folder.check()
        check_catalog_folder(self._properties)

    def fit(self, schema: str, partition_by: Sequence[str], *, merge_schema: bool = False) -> None:
        wanted = json.loads(schema)["fields"]
        check_columns(wanted, partition_by)
        with self._lock, self.errors():
            if not self.exists():
                self._create(wanted, partition_by)
            table = self._load()
            self._check(table)
            if merge_schema and (new := new_columns(table.schema(), wanted)):
                self._check_fits(table, [field for field in wanted if field not in new], partition_by)
                self._add_columns(wanted)
                table = self._load()
            self._check_fits(table, wanted, partition_by)
            self._fitting = wanted, partition_by

    @contextmanager
    def state(self) -> Iterator[IcebergState]:
        with self.errors():
            state = IcebergState(self._metadata(self._load()))
        yield state

    def commit(
        self,
        id_: str,
        check: Callable[[TableState], None],
        transactions: Mapping[str, int],
        files: Sequence[DataFile] = (),
    ) -> None:
        from pyiceberg.exceptions import CommitFailedException

        deadline = time.monotonic() + COMMIT_SECONDS
        with self._lock, self.errors():
            while True:
                try:
                    with commit_lock(self.folder):
                        self._commit_once(id_, check, transactions, files)
                    return
                except CommitFailedException as error:
                    if time.monotonic() > deadline:
                        raise StorageUnusable(
                            f"other writers of the table {self.name} came first for {COMMIT_SECONDS:.0f} s"
                        ) from error
                    self.commits_retried += 1

    def _commit_once(
        self,
        id_: str,
        check: Callable[[TableState], None],
        transactions: Mapping[str, int],
        files: Sequence[DataFile],
    ) -> None:
        """Raises as `commit`; CommitFailedException: another was first."""
        table = self._load()
        state = IcebergState(self._metadata(table))
        if state.id != id_:
            raise StorageUnusable(f"the table {self.name} was replaced by another while a batch was written")
        self._check(table)
        if files and self._fitting is not None:
            self._check_fits(table, *self._fitting)
        check(state)
        self._append(table, {**state.numbers, **transactions}, files)

    def _append(self, table: Table, numbers: Mapping[str, int], files: Sequence[DataFile]) -> None:
        """One commit upon the version that was read, also where there are no files: only a new snapshot keeps others
        from committing what they have decided on the one before. Raises CommitFailedException: another was first."""
        from pyiceberg.table.update.snapshot import ExpireSnapshots

        from kctl_agent.storage.lake.iceberg.data_files import entry
        from kctl_agent.storage.lake.iceberg.transaction import OneCommit

        packed, metadata = pack(numbers), self._metadata(table)
        folder = files[0].path.partition("/")[0] if files else ""
        properties = {**packed, SEQUENCE_NUMBER: str(metadata.last_sequence_number + 1)}
        if NAME_MAPPING not in metadata.properties:
            properties[NAME_MAPPING] = metadata.schema().name_mapping.model_dump_json()
        transaction = OneCommit(table)
        update = transaction.update_snapshot(snapshot_properties={**packed, FOLDER: folder})
        is_merging = metadata.properties.get("commit.manifest-merge.enabled") == "true"
        with update.merge_append() if is_merging else update.fast_append() as append:
            for file in files:
                append.append_data_file(entry(file, self.path, metadata))
        transaction.set_properties(properties)
        expired, unneeded = expiry.chosen(metadata, time.time(), table.io) if self._is_expiring else ([], [])
        if expired:
            ExpireSnapshots(transaction).by_ids([snapshot.snapshot_id for snapshot in expired]).commit()
        transaction.commit_transaction()
        expiry.remove_files(unneeded, table.io)

    def was_added(self, folder: str, versions: range) -> bool | None:
        with self.errors():
            return added_by(self._load().metadata, folder, versions)

    def counts(self) -> TableCounts:
        """By what the newest snapshot sums up; waits for no commit. Raises StorageUnusable."""
        with self.errors():
            table = self._load()
            return _counts(self._metadata(table), table.io)

    def exists(self) -> bool:
        """Raises StorageUnusable: that cannot be known."""
        with self.errors():
            return not self._is_catalog_missing() and self._opened().table_exists(self.name)

    def close(self) -> None:
        with self._opening:
            if self._catalog is not None:
                self._catalog.close()
            self._catalog = None

    def _opened(self) -> OwnCatalog:
        with self._opening:
            if self._catalog is None:
                try:
                    from kctl_agent.storage.lake.iceberg.catalog import make_catalog, settings

                    self._properties = settings(self._properties)
                    self._catalog = make_catalog(self._properties, self.path)
                except Exception as error:
                    raise self._unusable(error) from None
            return self._catalog

    def _is_catalog_missing(self) -> bool:
        """Then there is no table, and to open the catalog would make its file."""
        file = catalog_file(self._properties)
        return self._catalog is None and file is not None and not file.exists()

    def _load(self) -> Table:
        from pyiceberg.exceptions import NoSuchTableError

        if self._is_catalog_missing():
            raise NoSuchTableError
        return self._opened().load_table(self.name)

    def _metadata(self, table: Table) -> TableMetadataV2:
        """Raises TableRefused: of another version. The first has no numbers of snapshots, and pyiceberg does not know
        all of the third."""
        from pyiceberg.table.metadata import TableMetadataV2

        if not isinstance(table.metadata, TableMetadataV2):
            raise TableRefused(
                f"the table {self.name} has format version {table.metadata.format_version}, and kctl writes version 2"
            )
        return table.metadata

    def _create(self, wanted: Sequence[Mapping[str, Any]], partition_by: Sequence[str]) -> None:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from sqlalchemy.exc import SQLAlchemyError

        columns, catalog = schema(wanted), self._opened()
        namespace = self.name.rpartition(".")[0]
        catalog.make_tables()
        try:
            catalog.create_namespace_if_not_exists(namespace)
        except SQLAlchemyError:
            if not catalog.namespace_exists(namespace):
                raise
            # another worker was first, which pyiceberg does not expect
        try:
            catalog.create_table(
                self.name,
                columns,
                location=f"file://{self.path}",
                partition_spec=partition_spec(columns, partition_by),
                properties=PROPERTIES,
            )
        except TableAlreadyExistsError:
            return  # another worker was first

    def _add_columns(self, wanted: Sequence[Mapping[str, Any]]) -> None:
        from itertools import count

        from pyiceberg.exceptions import CommitFailedException

        for _ in range(ATTEMPTS):
            table = self._load()
            try:
                with table.update_schema() as update:
                    for field in new_columns(table.schema(), wanted):
                        update.add_column(field["name"], iceberg_type(field["type"], count(1)))
            except CommitFailedException:  # another worker may have added the same
                continue
            return
        raise StorageUnusable(f"other writers of the table {self.name} came first {ATTEMPTS} times")

    def _check(self, table: Table) -> None:
        """Raises TableRefused: it cannot be written."""
        from kctl_agent.storage.lake.iceberg.file_io import local_path

        self._metadata(table)
        try:
            is_here = local_path(table.location().rstrip("/")) == self.path
        except OSError:
            is_here = False
        if not is_here:
            raise TableRefused(
                f"the table {self.name} is in {table.location()}, and storage.uri is {self.path}: they must be the same"
            )

    def _check_fits(self, table: Table, wanted: Sequence[Mapping[str, Any]], partition_by: Sequence[str]) -> None:
        columns = partition_columns(self.name, table.spec(), table.schema())
        if columns != list(partition_by):
            raise TableRefused(
                f"the table {self.name} is partitioned by ({', '.join(columns)}), and storage.partition_by is "
                f"({', '.join(partition_by)})"
            )
        check_schema(self.name, table.schema(), wanted)
        mapping = table.name_mapping() if NAME_MAPPING in table.properties else None
        for field in wanted if mapping is not None else ():
            [id_] = [each.field_id for each in table.schema().fields if each.name == field["name"]]
            if not any(id_ == each.field_id and field["name"] in each.names for each in mapping):  # type: ignore[union-attr]
                raise TableRefused(
                    f"the property {NAME_MAPPING} of the table {self.name} does not have column {field['name']}, so "
                    "readers would not find it: add it there"
                )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raises StorageUnusable, TableRefused."""
        from kctl_agent.storage.lake.iceberg.file_io import NotOfTable

        try:
            yield
        except StorageError:
            raise
        except NotOfTable as error:
            raise TableRefused(f"the table {self.name} cannot be used: {error}") from error
        except _catalog_errors() as error:
            if type(error).__name__ == "NoSuchTableError":
                raise StorageUnusable(
                    f"the catalog has no table {self.name} (storage.table): nothing was stored yet, or another is meant"
                ) from error
            raise self._unusable(error) from None  # its cause may hold a secret

    def _unusable(self, error: Exception) -> StorageUnusable:
        text = without_secrets(str(error).split("(Background on", 1)[0], self._properties)
        return StorageUnusable(
            f"the table {self.name} or its catalog cannot be used: {' '.join(text.split()) or type(error).__name__}"
        )


def _catalog_errors() -> tuple[type[Exception], ...]:
    """What pyiceberg raises of catalogs and damaged files; its own errors have no class in common."""
    from pyiceberg import exceptions
    from sqlalchemy.exc import SQLAlchemyError

    own = [each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception)]
    return (*own, SQLAlchemyError, OSError, ValueError, NotImplementedError)


def _counts(metadata: TableMetadataV2, io: FileIO) -> TableCounts:
    snapshot = metadata.current_snapshot()
    summary = snapshot.summary.additional_properties if snapshot and snapshot.summary else {}
    rows = int(summary["total-records"]) if "total-records" in summary else None if snapshot else 0
    names = "total-data-files", "total-files-size"
    if all(name in summary for name in names):
        files, size = (int(summary[name]) for name in names)
    else:  # another engine may leave them out
        entries = [each for manifest in (snapshot.manifests(io) if snapshot else ()) for each in _entries(manifest, io)]
        files, size = len(entries), sum(each.data_file.file_size_in_bytes for each in entries)
    return TableCounts(
        metadata.last_sequence_number,
        files,
        size,
        rows,
        None,
        metadata.last_updated_ms / 1000,
    )


def _entries(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Of files of rows that are there."""
    from pyiceberg.manifest import DataFileContent

    return [each for each in manifest.fetch_manifest_entry(io) if each.data_file.content == DataFileContent.DATA]
