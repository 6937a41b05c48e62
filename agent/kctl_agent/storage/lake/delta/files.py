"""The Parquet files of a batch as actions of a Delta log: sizes, partition values, statistics of footers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.parquet import FileMetaData

from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.lake.folder import Folder, FolderFile

OWN_FOOTER = {b"kctl": b"compaction"}
"""Marks the footer of a file that kctl has written."""
NOTE = "_written.json"
"""A file in the folder of a batch that another process may have to commit."""
FOOTER_THREADS = 8
"""Number of a batch's footers that are read concurrently."""
STATS_COLUMNS = 32
"""Delta's own `delta.dataSkippingNumIndexedCols`."""
STATS_CHARACTERS = 32
"""Delta's own limit for strings; the last code point marks an upper bound of all strings with this prefix."""
LAST = "\U0010ffff"
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""The key of Spark's schema, in its own JSON, in a file's footer."""
DAY = re.compile(r"\d{4}-\d\d-\d\d")
"""Later years are `+12345-01-01` in Spark."""
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file, with `path` relative to the table's folder; `nulls`, `least`, `greatest` by column, as in the footer."""

    path: str
    size: int
    modified_ms: int
    partition_values: Mapping[str, str | None]
    rows: int
    nulls: Mapping[str, int] = field(default_factory=dict)
    least: Mapping[str, Any] = field(default_factory=dict)
    greatest: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stats(self) -> str:
        """Statistics of the Delta protocol, with `tightBounds`: a truncated value is still a bound."""
        least = {name: bound for name, value in self.least.items() if (bound := _bound(value)) is not None}
        greatest = {
            name: bound for name, value in self.greatest.items() if (bound := _bound(value, upper=True)) is not None
        }
        return (
            f'{{"numRecords":{self.rows},"minValues":{_json(least)},"maxValues":{_json(greatest)},'
            f'"nullCount":{_json(self.nulls)}}}'
        )


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a version of the table; `path` is escaped as in its log."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What Spark wrote into a batch's folder: its row count, and the names of files of committed task attempts."""

    rows: int = 0
    files: frozenset[str] = frozenset()

    def __add__(self, other: Written) -> Written:
        return Written(self.rows + other.rows, self.files | other.files)

    def note(self, table: Folder, folder: Folder) -> None:
        """Saves this in the folder, for a process that has only the folder. Raises StorageUnusable."""
        try:
            folder.write(NOTE, json.dumps([self.rows, sorted(self.files)]).encode())
            table.sync([f"{folder.name}/{NOTE}"])
        except OSError as error:
            raise StorageUnusable(f"{folder} cannot be written: {error.strerror}") from error

    @classmethod
    def noted(cls, folder: Folder) -> Written | None:
        """Returns what `note` has saved; None: nothing. Raises StorageUnusable."""
        try:
            rows, files = json.loads(folder.read(NOTE))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StorageUnusable(f"{NOTE} of {folder} cannot be read: {error}") from error
        return cls(rows, frozenset(files))


def table_files(table: DeltaTable) -> Iterator[TableFile]:
    """Returns all files of a version. Raises what delta-rs raises."""
    columns, partitions = table.get_add_actions(flatten=True), table.metadata().partition_columns
    names = ("path", "size_bytes", "num_records", *(f"partition.{name}" for name in partitions))
    for path, size, rows, *values in zip(*(columns.column(name).to_pylist() for name in names), strict=True):
        yield TableFile(path, size, dict(zip(partitions, map(_partition_text, values), strict=True)), rows)


def _partition_text(value: object) -> str | None:
    """Returns a partition's value in the Delta protocol's form."""
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def written_files(table: Folder, folder: Folder, written: Written | None = None) -> list[DataFile] | None:
    """Returns the files with rows that Spark wrote into a batch's folder, synced. None: there is no such folder.

    The folder exists even if there is no row. `written` is Spark's report; None: unknown. Raises StorageUnusable, also
    if the files have more or fewer rows: then they are removed.
    """
    try:
        files = read_files(table, folder, None if written is None else written.files) if folder.exists() else None
    except OSError as error:
        raise StorageUnusable(f"the files in {folder} cannot be read and synced: {error.strerror}") from error
    if files is None or written is None or (found := sum(file.rows for file in files)) == written.rows:
        return files
    folder.remove_all()
    raise StorageUnusable(
        f"Spark has written {number_of(written.rows, 'row')} into {folder}, and the files there have {found}: nothing "
        "was stored; Spark and kctl must see the same folder, and nobody else may write there"
    )


def read_files(table: Folder, folder: Folder, names: Collection[str] | None = None) -> list[DataFile]:
    """Returns the files of these names (None: all) with rows in a batch's folder, synced, and removes the others.

    Raises OSError.
    """
    useful: list[FolderFile] = []
    useless: list[str] = []
    for file in folder.files():
        *folders, name = file.name.split("/")
        if any(map(is_hidden, folders)) or file.name == NOTE:
            continue
        if is_hidden(name) or (names is not None and file.name not in names):
            useless.append(file.name)
        else:
            useful.append(file)
    with ThreadPoolExecutor(FOOTER_THREADS) as threads:
        read = list(threads.map(partial(_read_file, folder), useful))
    # Spark writes a file without rows where a batch has none.
    useless += [file.name for file, each in zip(useful, read, strict=True) if not each.rows]
    if useless:
        folder.remove(useless)
    found = [each for each in read if each.rows]
    table.sync(file.path for file in found)
    return found


class DayRefused(TableRefused):
    """A row has a day that readers of the table do not know. Nothing of this batch was or will be committed."""

    code = "day_refused"


def check_days(table: object, files: Iterable[DataFile], columns: Sequence[str]) -> None:
    """Checks partitions by these date columns. Raises DayRefused: delta-rs could not read the table any more."""
    for value, name in ((file.partition_values.get(name), name) for file in files for name in columns):
        if value is not None and (not DAY.fullmatch(value) or value.startswith("0000")):
            raise DayRefused(
                f"a row of the batch is of {value} in {name}, by which the table {table} is partitioned, and there are "
                "only the years 1 to 9999: give it another date in the transform, or mark it by _kctl_error; nothing "
                "was stored"
            )


def is_hidden(name: str) -> bool:
    """Whether engines ignore a file or folder of this name: leftovers of abandoned tasks, checksums.

    A partition by a column `_day` is not hidden: its folder contains `=`, which Delta's VACUUM and Spark check too.
    """
    return name.startswith(("_", ".")) and "=" not in name


def is_exact(footer: FileMetaData) -> bool:
    """Whether statistics include NaN, or are missing for columns with it, as Spark and kctl write them."""
    return footer.created_by.startswith("parquet-mr") or OWN_FOOTER.items() <= (footer.metadata or {}).items()


def is_ordered(footer: FileMetaData, number: int) -> bool:
    """Whether no value of this column is NaN: the largest for Spark, without an order for Python.

    Writers other than Spark and kctl leave NaN out of a footer, so it is unknown there.
    """
    groups = [footer.row_group(each).column(number) for each in range(footer.num_row_groups)]
    if all(group.physical_type not in ("FLOAT", "DOUBLE") for group in groups):
        return True
    return is_exact(footer) and all(_is_ordered(group.statistics, group) for group in groups)


def _is_ordered(stats: Any, group: Any) -> bool:
    if stats is None or not stats.has_null_count:
        return False
    if not _has_values(stats, group):
        return True
    return stats.has_min_max and not (math.isnan(stats.min) or math.isnan(stats.max))


def spark_schema(table: Folder, path: str) -> str | None:
    """Returns the schema of a file that Spark wrote, without partition columns; None: another writer."""
    with table.open(path) as opened:
        found = (pq.read_metadata(opened).metadata or {}).get(SPARK_SCHEMA)
    return None if found is None else found.decode()


def _read_file(folder: Folder, file: FolderFile) -> DataFile:
    with folder.open(file.name) as opened:
        metadata = pq.read_metadata(opened)
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for number in list(_top_level(metadata))[:STATS_COLUMNS]:
        groups = [metadata.row_group(i).column(number) for i in range(metadata.num_row_groups)]
        name = metadata.schema.column(number).name
        every = [group.statistics for group in groups]
        if not every or any(stats is None or not stats.has_null_count for stats in every):
            continue
        nulls[name] = sum(stats.null_count for stats in every)
        known = [stats for stats, group in zip(every, groups, strict=True) if _has_values(stats, group)]
        if is_ordered(metadata, number) and (bounds := _bounds(known)) is not None:
            least[name], greatest[name] = bounds
    return DataFile(
        f"{folder.name}/{file.name}",
        file.size,
        int(file.modified * 1000),
        dict(_partition_values(file.name.split("/")[:-1])),
        metadata.num_rows,
        nulls,
        least,
        greatest,
    )


def _has_values(stats: Any, group: Any) -> bool:
    return bool(stats.null_count < group.num_values)


def _bounds(known: Sequence[Any]) -> tuple[Any, Any] | None:
    """Returns the smallest and largest value by the row groups' statistics; None if there are none that hold.

    Spark writes dates beyond year 9999 and strings that are not UTF-8, which Python cannot represent.
    """
    if not known or not all(stats.has_min_max for stats in known):
        return None
    try:
        least, greatest = [stats.min for stats in known], [stats.max for stats in known]
    except (ValueError, OverflowError):
        return None
    return min(least), max(greatest)


def _top_level(metadata: Any) -> Iterator[int]:
    """Returns columns outside arrays, maps and structs."""
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        if column.path == column.name and column.max_repetition_level == 0:
            yield number


def _partition_values(folders: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    for folder in folders:
        name, _, value = folder.partition("=")
        yield unquote(name), None if value == NULL_PARTITION else unquote(value)


def _json(values: Mapping[str, object]) -> str:
    """Encodes every digit of a decimal, which `json` cannot; without escapes, as in a log entry."""

    def text(value: object) -> str:
        return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)

    return "{" + ",".join(f"{text(name)}:{text(value)}" for name, value in values.items()) + "}"


def _bound(value: object, *, upper: bool = False) -> object:
    """Returns a bound as it is written; None: this type has none."""
    if isinstance(value, str):
        return _upper(value) if upper else value[:STATS_CHARACTERS]
    if isinstance(value, datetime):
        utc = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return utc.isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")  # strftime cuts year 1 short
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int | Decimal):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def _upper(value: str) -> str | None:
    if len(value) <= STATS_CHARACTERS:
        return value
    # The last code point is no bound of what goes on with the same one.
    return None if value[STATS_CHARACTERS] == LAST else value[:STATS_CHARACTERS] + LAST
