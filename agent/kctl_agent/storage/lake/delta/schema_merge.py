"""New columns of a batch become columns of its table (`storage.merge_schema`); rows that are there have null in them.

Only whole columns are added: a type that has changed is refused as ever, and so is a new field inside of a struct.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltalake import DeltaTable

__all__ = ["add_columns", "new_columns", "nullable", "unknown_type"]

TYPES = frozenset(
    {"string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp"}
)
"""Delta's own, without features; `timestamp_ntz` has one that is written here."""


def new_columns(there: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of the wanted ones (fields of Spark's JSON) that a table does not have. Names that differ by case alone
    are one column, as for Delta itself."""
    names = {field["name"].lower() for field in there}
    return [field for field in wanted if field["name"].lower() not in names]


def add_columns(table: DeltaTable, fields: Sequence[Mapping[str, Any]]) -> None:
    """A commit of its own. Raises CommitFailedError: another writer has changed the table meanwhile; and what delta-rs
    raises of a type that the table cannot have."""
    from deltalake import Field

    made = nullable({"type": "struct", "fields": fields})["fields"]
    table.alter.add_columns([Field.from_json(json.dumps(field)) for field in made])


def nullable(type_: Any) -> Any:
    """A type in which everything may be null, as Delta's own writer makes tables."""
    if not isinstance(type_, dict):
        return type_
    if type_["type"] == "struct":
        fields = [{**field, "nullable": True, "type": nullable(field["type"])} for field in type_["fields"]]
        return {**type_, "fields": fields}
    return {
        key: True if key.endswith("ContainsNull") or key == "containsNull" else nullable(value)
        for key, value in type_.items()
    }


def _is_simple(name: str) -> bool:
    """Whether a Delta table can have this type, which holds no others."""
    return name in TYPES or name == "timestamp_ntz" or name.startswith("decimal")


def unknown_type(type_: Any) -> str | None:
    """The first type in this one (Spark's JSON) that a table cannot have; delta-rs itself takes some, such as
    intervals, that other engines cannot read, or gives the table a feature for them."""
    if isinstance(type_, str):
        return None if _is_simple(type_) else type_
    inner = {
        "struct": lambda: [field["type"] for field in type_["fields"]],
        "array": lambda: [type_["elementType"]],
        "map": lambda: [type_["keyType"], type_["valueType"]],
    }.get(type_["type"])
    if inner is None:
        return str(type_["type"])
    return next((found for each in inner() if (found := unknown_type(each)) is not None), None)
