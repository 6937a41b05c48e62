"""Compaction: merges small files into large ones, with one commit for each large file.

Workers may commit batches meanwhile. If an UPDATE, DELETE, MERGE or OPTIMIZE has changed a file to be merged, the
compaction stops. kctl does not use the compaction of delta-rs: its statistics make Spark skip rows with NaN, it reports
success although another OPTIMIZE came first, and it does not sync files.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet import FileMetaData

from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.lake.delta.batch_plans import BATCH, BatchPlan, forget, has_plan_on, sweep
from kctl_agent.storage.lake.delta.files import OWN_FOOTER, DataFile, TableFile, is_exact, is_ordered, read_files
from kctl_agent.storage.lake.delta.log import own_file
from kctl_agent.storage.lake.delta.table import COMPACTIONS, LakeTable, Overtaken
from kctl_agent.storage.lake.delta.table_counts import is_small
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.limits import readable

NAME = "part-00000.zstd.parquet"
READ_ROWS = 4096
READ_BYTES = 16 << 20
ROW_GROUP_BYTES = 64 << 20
MOST_FILES = 10_000
AT_ONCE = 8  # footers read concurrently: in an object store each is a request

Group = list[TableFile]


@dataclass(slots=True)
class Compacted:
    version: int
    removed: list[TableFile] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)

    def __str__(self) -> str:
        removed, added = (
            f"{number_of(len(files), 'file')} ({readable(sum(file.size for file in files))})"
            for files in (self.removed, self.added)
        )
        return f"{removed} became {added}: version {self.version}"


class Compaction:
    """Compacts the files that the table had when this object was created. For one thread."""

    def __init__(self, lake: LakeTable) -> None:
        self._lake = lake
        self._basis, self.files = lake.rewritable_files()

    def small_files(self, target_file_bytes: int, least: int = 2, share: float = 0.0) -> list[Group]:
        """Groups small files by partition.

        Leaves out a partition's largest file if all smaller ones together have less than `share` times its size, and
        repeats this with the next largest. A `share` of 1 avoids rewriting a large file for a few new rows. Returns
        no groups if every partition has fewer than `least` files left.
        """
        by_partition: dict[tuple[str | None, ...], list[TableFile]] = {}
        for file in self.files:
            if is_small(file.size, target_file_bytes):
                by_partition.setdefault(tuple(file.partition_values.values()), []).append(file)
        by_partition = {partition: _worthwhile(files, share) for partition, files in by_partition.items()}
        if not any(len(files) >= least for files in by_partition.values()):
            return []
        groups = (group for files in by_partition.values() for group in _groups(files, target_file_bytes))
        return [group for group in groups if len(group) > 1]

    def inexact_files(self, besides: Iterable[Group]) -> list[Group]:
        """Returns files whose statistics may hide rows with NaN, such as files written by delta-rs. Each file is its
        own group. Leaves out the files in `besides`."""
        taken = {file.path for group in besides for file in group}
        files = [file for file in self.files if file.path not in taken]
        with self._lake.errors(), ThreadPoolExecutor(AT_ONCE) as threads:
            footers = threads.map(partial(read_footer, self._lake.folder), files)
            return [[file] for file, footer in zip(files, footers, strict=True) if not is_exact(footer)]

    def run(self, groups: Iterable[Group], progress: Callable[[int], object] = lambda _version: None) -> Compacted:
        """Compacts and commits group by group, and calls `progress` with each new version. If another process is
        compacting this table, that process's next commit fails. Raises StorageUnusable, TableRefused."""
        self._fence()
        total = Compacted(self._basis.version)
        for files in groups:
            added, total.version = self._replace(files)
            progress(total.version)
            total.removed += files
            total.added += added
        self._lake.checkpoints.wait()
        return total

    def _fence(self) -> None:
        with self._lake.errors():
            is_left = has_plan_on(self._lake.folder, COMPACTIONS)
        if is_left:
            self._lake.replace((), (), self._basis)
            sweep(self._lake)

    def _replace(self, files: Group) -> tuple[list[DataFile], int]:
        folder = self._lake.folder
        made = folder.subfolder(f"{BATCH}{uuid.uuid4().hex}")
        BatchPlan(self._basis.version, {COMPACTIONS: self._basis.number}).write(folder, made.name)
        try:
            with self._lake.errors():
                added = merge_files(folder, made, files, self._basis.columns)
        except BaseException:
            _discard(folder, made)
            raise
        try:
            version = self._lake.replace(files, added, self._basis)
        except Overtaken:
            _discard(folder, made)
            raise
        forget(folder, made.name)
        return added, version


def _worthwhile(files: Group, share: float) -> Group:
    size = largest = 0
    for each in sorted(file.size for file in files):
        if each * share <= size:
            largest = each
        size += each
    return [file for file in files if file.size <= largest]


def _groups(files: Iterable[TableFile], target_file_bytes: int) -> Iterator[Group]:
    group: Group = []
    size = 0
    for file in files:
        if size >= target_file_bytes or len(group) == MOST_FILES:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    yield group


def _discard(table: Folder, made: Folder) -> None:
    made.remove_all()
    forget(table, made.name)


def merge_files(table: Folder, to: Folder, files: Sequence[TableFile], columns: pa.Schema) -> list[DataFile]:
    """Merges files with pyarrow. Returns no file if they have no rows. `columns` exclude the table's partition columns.

    Writes no statistics for a column that may have NaN. Spark orders NaN above all numbers, so statistics without NaN
    would make it skip rows.
    """
    footers = [read_footer(table, file) for file in files]
    written = pa.BufferOutputStream()
    try:
        with pq.ParquetWriter(
            written,
            columns,
            compression="zstd",
            write_statistics=_ordered(footers),
            store_schema=False,
            store_decimal_as_integer=True,
        ) as writer:
            writer.add_key_value_metadata(OWN_FOOTER)
            for part in _parts(_fitted(table, file, columns) for file in files):
                writer.write_table(part, row_group_size=part.num_rows)
    except pa.ArrowException as error:
        raise StorageUnusable(f"files of {table} cannot be compacted: {error}") from error
    to.write(NAME, written.getvalue().to_pybytes())
    merged = read_files(table, to)
    rows, found = (sum(each) for each in ((footer.num_rows for footer in footers), (file.rows for file in merged)))
    if rows != found:
        raise StorageUnusable(f"of {rows} rows of {table} {found} were compacted: nothing was changed")
    return [replace(file, partition_values=files[0].partition_values) for file in merged]


def read_footer(table: Folder, file: TableFile) -> FileMetaData:
    with table.open(own_file(file.path)) as opened:
        return pq.read_metadata(opened)


def _ordered(footers: Iterable[FileMetaData]) -> list[str]:
    known: set[str] = set()
    unordered: set[str] = set()
    for footer in footers:
        for number in range(footer.num_columns):
            column = footer.schema.column(number)
            is_known = column.max_repetition_level == 0 and is_ordered(footer, number)
            (known if is_known else unordered).add(column.path)
    return sorted(known - unordered)


def _fitted(table: Folder, file: TableFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    with table.open(own_file(file.path)) as opened, pq.ParquetFile(opened, coerce_int96_timestamp_unit="us") as parquet:
        if unknown := set(_paths(parquet.schema_arrow)) - set(_paths(columns)) - file.partition_values.keys():
            raise TableRefused(f"{file.path} of {table} has {min(unknown)}, and the table has no such column")
        for batch in _read(parquet):
            there = batch.schema.names
            yield pa.RecordBatch.from_arrays(
                [
                    batch.column(name).cast(type_) if name in there else pa.nulls(batch.num_rows, type_)
                    for name, type_ in zip(columns.names, columns.types, strict=True)
                ],
                schema=columns,
            )


def _read(parquet: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    for number in range(parquet.num_row_groups):
        group = parquet.metadata.row_group(number)
        rows = READ_BYTES * group.num_rows // max(group.total_byte_size, 1)
        yield from parquet.iter_batches(max(1, min(rows, READ_ROWS)), row_groups=[number], use_threads=False)


def _paths(fields: Iterable[pa.Field], parent: str = "") -> Iterator[str]:
    for each in fields:
        yield (path := f"{parent}{each.name}")
        inner = [each.type.field(number) for number in range(each.type.num_fields)]
        if not pa.types.is_struct(each.type):  # elements of a list, keys and values of a map have any name
            inner = [part.with_name(str(number)) for number, part in enumerate(inner)]
        yield from _paths(inner, f"{path}.")


def _parts(files: Iterable[Iterator[pa.RecordBatch]]) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in chain.from_iterable(files):
        waiting.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
