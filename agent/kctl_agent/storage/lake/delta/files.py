"""The Parquet files of a batch as actions of a Delta log: sizes, partition values, and statistics from footers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from kctl_agent.storage.lake.folder import Folder, FolderFile, at_once

OWN_FOOTER = {b"kctl": b"compaction"}
NOTE = "_written.json"
STATS_COLUMNS = 32  # Delta's own `delta.dataSkippingNumIndexedCols`
STATS_CHARACTERS = 32
"""Delta's own limit for strings; the last code point marks an upper bound of all strings with this prefix."""
LAST = "\U0010ffff"
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
DAY = re.compile(r"\d{4}-\d\d-\d\d")  # Spark writes later years as `+12345-01-01`
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with rows, with its footer's statistics by column. `path` is relative to the table."""

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
        """The statistics as JSON for the log. Long texts are shortened, but remain lower or upper bounds."""
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
    """A file in the table's log. `path` is escaped as in the log."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """Spark's report of a write: the number of rows, and the files of committed task attempts."""

    rows: int = 0
    files: frozenset[str] = frozenset()

    def __add__(self, other: Written) -> Written:
        return Written(self.rows + other.rows, self.files | other.files)

    def note(self, table: Folder, folder: Folder) -> None:
        """Writes the report into the folder, so that another process can commit the files. Raises StorageUnusable."""
        try:
            folder.write(NOTE, json.dumps([self.rows, sorted(self.files)]).encode())
            table.sync([f"{folder.name}/{NOTE}"])
        except OSError as error:
            raise StorageUnusable(f"{folder} cannot be written: {error.strerror}") from error

    @classmethod
    def noted(cls, folder: Folder) -> Written | None:
        try:
            rows, files = json.loads(folder.read(NOTE))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise StorageUnusable(f"{NOTE} of {folder} cannot be read: {error}") from error
        return cls(rows, frozenset(files))


def table_files(table: DeltaTable) -> Iterator[TableFile]:
    columns, partitions = table.get_add_actions(flatten=True), table.metadata().partition_columns
    names = ("path", "size_bytes", "num_records", *(f"partition.{name}" for name in partitions))
    for path, size, rows, *values in zip(*(columns.column(name).to_pylist() for name in names), strict=True):
        yield TableFile(path, size, dict(zip(partitions, map(_partition_text, values), strict=True)), rows)


def _partition_text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def written_files(table: Folder, folder: Folder, written: Written | None = None) -> list[DataFile] | None:
    """Syncs and returns the files with rows, and removes other files. Returns None if the folder does not exist. Raises
    StorageUnusable if the files are unreadable. If they have more or fewer rows than `written`, removes the folder and
    raises StorageUnusable."""
    try:
        files = read_files(table, folder, None if written is None else written.files) if folder.exists() else None
    except OSError as error:
        raise StorageUnusable(f"the files in {folder} cannot be read and synced: {error.strerror}") from error
    if files is None or written is None or (found := sum(file.rows for file in files)) == written.rows:
        return files
    folder.remove_all()
    raise StorageUnusable(
        f"Spark has written {number_of(written.rows, 'row')} into {folder}, but the files there have {found}: nothing "
        "was stored; Spark and kctl must see the same folder, and no other program may write there"
    )


def read_files(table: Folder, folder: Folder, names: Collection[str] | None = None) -> list[DataFile]:
    """Syncs and returns files with rows (only `names`, if given). Keeps `NOTE` and hidden folders. Removes the rest."""
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
    read = at_once(partial(_read_file, folder), useful)
    # For a batch without rows Spark writes a file without rows.
    useless += [file.name for file, each in zip(useful, read, strict=True) if not each.rows]
    if useless:
        folder.remove(useless)
    found = [each for each in read if each.rows]
    table.sync(file.path for file in found)
    return found


class DayRefused(TableRefused, code="day_refused"):
    """A row has a date outside the years 1 to 9999 in a partition column. The message names the date and column."""


def check_days(table: object, files: Iterable[DataFile], columns: Sequence[str]) -> None:
    """Checks partition values that are dates, because delta-rs reads only the years 1 to 9999. Raises DayRefused."""
    for value, name in ((file.partition_values.get(name), name) for file in files for name in columns):
        if value is not None and (not DAY.fullmatch(value) or value.startswith("0000")):
            raise DayRefused(
                f"a row of the batch is of {value} in {name}, by which the table {table} is partitioned, but only the "
                "years 1 to 9999 are allowed: give the row another date in the transform, or mark it by _kctl_error; "
                "nothing was stored"
            )


def is_hidden(name: str) -> bool:
    """Whether engines ignore a file or folder of this name, such as a leftover of abandoned tasks or a checksum."""
    # `_day=2026-01-31` is the folder of a partition.
    return name.startswith(("_", ".")) and "=" not in name


def is_exact(footer: FileMetaData) -> bool:
    """Whether a NaN in the file shows in the footer's statistics. Spark and kctl include it; others leave it out."""
    return footer.created_by.startswith("parquet-mr") or OWN_FOOTER.items() <= (footer.metadata or {}).items()


def is_ordered(footer: FileMetaData, number: int) -> bool:
    """Whether this column certainly has no NaN. Returns False for floats if the writer leaves NaN out of footers."""
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
    """Returns a file's schema without partition columns, or None if Spark did not write the file."""
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
    path, modified_ms = f"{folder.name}/{file.name}", int(file.modified * 1000)
    partition_values = dict(_partition_values(file.name.split("/")[:-1]))
    return DataFile(path, file.size, modified_ms, partition_values, metadata.num_rows, nulls, least, greatest)


def _has_values(stats: Any, group: Any) -> bool:
    return bool(stats.null_count < group.num_values)


def _bounds(known: Sequence[Any]) -> tuple[Any, Any] | None:
    if not known or not all(stats.has_min_max for stats in known):
        return None
    try:
        least, greatest = [stats.min for stats in known], [stats.max for stats in known]
    except (ValueError, OverflowError):  # Spark also writes dates after year 9999 and strings that are not UTF-8
        return None
    return min(least), max(greatest)


def _top_level(metadata: Any) -> Iterator[int]:
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        if column.path == column.name and column.max_repetition_level == 0:
            yield number


def _partition_values(folders: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    for folder in folders:
        name, _, value = folder.partition("=")
        yield unquote(name), None if value == NULL_PARTITION else unquote(value)


def _json(values: Mapping[str, object]) -> str:
    def text(value: object) -> str:
        return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)

    return "{" + ",".join(f"{text(name)}:{text(value)}" for name, value in values.items()) + "}"


def _bound(value: object, *, upper: bool = False) -> object:
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
    # The last code point is not a bound if the text continues with it.
    return None if value[STATS_CHARACTERS] == LAST else value[:STATS_CHARACTERS] + LAST
