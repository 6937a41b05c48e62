"""Parquet files of a batch as entries of an Iceberg manifest: partition, sizes, and for data skipping the statistics of
their footers, which `lake.files` has read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl_agent.storage.lake.files import DataFile, check_days

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.types import IcebergType

__all__ = ["entry"]

BOUND_LENGTH = 16
"""Of text and bytes, as Iceberg itself cuts them (`write.metadata.metrics.default`)."""
EPOCH = date(1970, 1, 1)


def entry(file: DataFile, table: Path, metadata: TableMetadata) -> Entry:
    """The names of its columns are those of the table. `table` is the folder, which the file's path begins with as it
    is: nothing of a location is escaped. Raises DayRefused."""
    from pyiceberg.manifest import DataFile as Entry
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.typedef import Record
    from pyiceberg.types import DateType

    columns = [metadata.schema().find_field(field.source_id) for field in metadata.spec().fields]
    check_days(table, [file], [column.name for column in columns if isinstance(column.field_type, DateType)])
    types = {field.name: (field.field_id, field.field_type) for field in metadata.schema().fields}
    counted = [name for name in file.nulls if name in types]
    return Entry.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{table}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*(_value(column.field_type, file.partition_values[column.name]) for column in columns)),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        spec_id=metadata.default_spec_id,
        value_counts={types[name][0]: file.rows for name in counted},
        null_value_counts={types[name][0]: file.nulls[name] for name in counted},
        lower_bounds=_bounds(file.least, types, is_upper=False),
        upper_bounds=_bounds(file.greatest, types, is_upper=True),
    )


def _value(type_: IcebergType, text: str | None) -> object:
    """What Spark has written into the name of a folder."""
    from pyiceberg.conversions import partition_to_py
    from pyiceberg.types import BooleanType, DateType

    if text is None:
        return None
    if isinstance(type_, DateType):
        return (date.fromisoformat(text) - EPOCH).days
    if isinstance(type_, BooleanType):
        return text.lower() == "true"
    return partition_to_py(type_, text)  # type: ignore[arg-type]


def _bounds(
    values: Mapping[str, Any], types: Mapping[str, tuple[int, IcebergType]], *, is_upper: bool
) -> dict[int, bytes]:
    from pyiceberg.conversions import to_bytes

    found = {}
    for name, value in values.items():
        if name in types and (bound := _bound(value, is_upper=is_upper)) is not None:
            id_, type_ = types[name]
            found[id_] = to_bytes(type_, bound)  # type: ignore[arg-type]
    return found


def _bound(value: Any, *, is_upper: bool) -> Any:
    """None: there is none so short."""
    from pyiceberg.utils.truncate import truncate_upper_bound_binary_string, truncate_upper_bound_text_string

    if not isinstance(value, str | bytes) or len(value) <= BOUND_LENGTH:
        return value
    if not is_upper:
        return value[:BOUND_LENGTH]
    if isinstance(value, bytes):
        return truncate_upper_bound_binary_string(value, BOUND_LENGTH)
    upper = truncate_upper_bound_text_string(value, BOUND_LENGTH)
    return None if upper is None or any("\ud800" <= each <= "\udfff" for each in upper) else upper
