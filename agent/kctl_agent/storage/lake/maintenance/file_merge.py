"""Merges files of a table by pyarrow, with a footer that does not hide rows: Spark orders NaN above all numbers, other
writers leave it out. So a column that may have NaN gets no statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet import FileMetaData

from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.lake.delta.files import OWN_FOOTER, DataFile, TableFile, is_ordered, read_files
from kctl_agent.storage.lake.delta.log import own_file
from kctl_agent.storage.lake.folder import Folder

NAME = "part-00000.zstd.parquet"
CODEC = "zstd"
READ_ROWS = 4096
READ_BYTES = 16 << 20
ROW_GROUP_BYTES = 64 << 20


def merge_files(table: Folder, to: Folder, files: Sequence[TableFile], columns: pa.Schema) -> list[DataFile]:
    """Returns no file if these files have no row. `columns` are the table's without those of its partitions."""
    footers = [read_footer(table, file) for file in files]
    written = pa.BufferOutputStream()
    try:
        with pq.ParquetWriter(
            written,
            columns,
            compression=CODEC,
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
    """All names that a cast finds: columns, and fields in structs."""
    for field in fields:
        yield (path := f"{parent}{field.name}")
        inner = [field.type.field(number) for number in range(field.type.num_fields)]
        if not pa.types.is_struct(field.type):  # elements of a list, keys and values of a map have any name
            inner = [each.with_name(str(number)) for number, each in enumerate(inner)]
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
