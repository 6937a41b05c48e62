"""Columns of a batch (Spark's JSON) as those of an Iceberg table, and whether they fit those that are there. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from kctl_agent.storage.lake.folder import TableRefused
from kctl_agent.storage.lake.schema_merge import unknown_type

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField

__all__ = [
    "check_columns",
    "check_schema",
    "iceberg_type",
    "new_columns",
    "partition_columns",
    "partition_spec",
    "schema",
]

Field = Mapping[str, Any]
PARTITION_TYPES = frozenset({"string", "integer", "long", "date", "boolean"})


def check_columns(wanted: Sequence[Field], partition_by: Sequence[str]) -> None:
    """Raises TableRefused: no Iceberg table can have these."""
    names = [field["name"] for field in wanted]
    lower = [name.lower() for name in names]
    if twice := [name for name in names if lower.count(name.lower()) > 1]:
        raise TableRefused(f"there are several columns called {twice[0]!r}: rename them in the transform")
    for field in wanted:
        if (unknown := unknown_type(field["type"], _is_simple)) is not None:
            raise TableRefused(
                f"column {field['name']} has the type {unknown}, which an Iceberg table cannot have: cast it"
            )
    types = {field["name"]: field["type"] for field in wanted}
    for name in partition_by:
        if name not in types:
            raise TableRefused(f"storage.partition_by names {name}, and the columns are {', '.join(names)}")
        if types[name] not in PARTITION_TYPES:
            raise TableRefused(
                f"storage.partition_by names {name}, by whose type, {types[name]}, nothing is partitioned"
            )
    if len(set(partition_by)) < len(partition_by):
        raise TableRefused(f"storage.partition_by names a column twice: {', '.join(partition_by)}")
    if len(partition_by) == len(names):
        raise TableRefused("storage.partition_by names every column: one must remain for the files")


def schema(wanted: Sequence[Field]) -> Schema:
    """In which everything may be null."""
    from pyiceberg.schema import Schema

    return Schema(*_fields(wanted, count(1)))


def partition_spec(schema: Schema, partition_by: Sequence[str]) -> PartitionSpec:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    return PartitionSpec(
        *(
            PartitionField(schema.find_field(name).field_id, 1000 + number, IdentityTransform(), name)
            for number, name in enumerate(partition_by)
        )
    )


def partition_columns(path: object, spec: PartitionSpec, schema: Schema) -> list[str]:
    """Raises TableRefused: it is partitioned by something else than values of columns."""
    from pyiceberg.transforms import IdentityTransform

    found = []
    for field in spec.fields:
        column = schema.find_column_name(field.source_id)
        if not isinstance(field.transform, IdentityTransform) or column is None or "." in column:
            raise TableRefused(
                f"the table {path} is partitioned by {field.transform}({column}): kctl only writes partitions by the "
                "values of columns"
            )
        found.append(column)
    return found


def new_columns(there: Schema, wanted: Sequence[Field]) -> list[Field]:
    """Names that differ by case alone are one column, as for Spark."""
    names = {field.name.lower() for field in there.fields}
    return [field for field in wanted if field["name"].lower() not in names]


def check_schema(path: object, there: Schema, wanted: Sequence[Field]) -> None:
    """Raises TableRefused: rows of these columns do not fit."""
    columns = {field.name: field for field in there.fields}
    for field in wanted:
        name = field["name"]
        if name not in columns:
            raise TableRefused(
                f"the table {path} has no column {name}: add it to the table, leave it out in the transform, or set "
                "storage.merge_schema"
            )
        made = iceberg_type(field["type"], count(1))
        if _plain(columns[name].field_type) != _plain(made):
            raise TableRefused(
                f"column {name} of the table {path} is {columns[name].field_type}, and the batch has {made}"
            )
    given = {field["name"]: field for field in wanted}
    for name, column in columns.items():
        if column.required and (name not in given or given[name]["nullable"]):
            raise TableRefused(
                f"column {name} of the table {path} must not be null, and the batch may have nulls there"
            )


def iceberg_type(type_: Any, ids: Iterator[int]) -> IcebergType:
    """Of a type that is known."""
    from pyiceberg import types as t

    if isinstance(type_, str):
        if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", type_):
            return t.DecimalType(int(decimal[1]), int(decimal[2]))
        return _simple()[type_]()
    if type_["type"] == "struct":
        return t.StructType(*_fields(type_["fields"], ids))
    if type_["type"] == "array":
        return t.ListType(next(ids), iceberg_type(type_["elementType"], ids), element_required=False)
    key_id, value_id = next(ids), next(ids)
    key, value = iceberg_type(type_["keyType"], ids), iceberg_type(type_["valueType"], ids)
    return t.MapType(key_id, key, value_id, value, value_required=False)


def _fields(fields: Sequence[Field], ids: Iterator[int]) -> list[NestedField]:
    from pyiceberg.types import NestedField

    numbered = [(next(ids), field) for field in fields]
    return [NestedField(id_, field["name"], iceberg_type(field["type"], ids)) for id_, field in numbered]


def _simple() -> dict[str, Callable[[], IcebergType]]:
    from pyiceberg import types as t

    return {
        "boolean": t.BooleanType,
        "integer": t.IntegerType,
        "long": t.LongType,
        "float": t.FloatType,
        "double": t.DoubleType,
        "date": t.DateType,
        "timestamp": t.TimestamptzType,
        "timestamp_ntz": t.TimestampType,
        "string": t.StringType,
        "binary": t.BinaryType,
    }


def _is_simple(name: str) -> bool:
    """Not bytes and shorts: Iceberg has none, and readers need not take files that have them for its integers."""
    return name in _simple() or name.startswith("decimal(")


def _plain(type_: IcebergType) -> object:
    """A type without ids and comments; what must not be null inside of it is another one."""
    from pyiceberg import types as t

    if isinstance(type_, t.StructType):
        return [(field.name, field.required, _plain(field.field_type)) for field in type_.fields]
    if isinstance(type_, t.ListType):
        return "list", type_.element_required, _plain(type_.element_type)
    if isinstance(type_, t.MapType):
        return "map", _plain(type_.key_type), type_.value_required, _plain(type_.value_type)
    return str(type_)
