"""Adds a batch's new columns to its table (`storage.merge_schema`), null in existing rows. Rejects a changed type and a
new field inside a struct."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import DeltaTable, Field

TYPES = frozenset(
    {"string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp"}
)
"""Types that need no feature of the table. Only `timestamp_ntz` needs one, which kctl writes."""


def new_columns(there: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns fields in Spark's JSON; ignores the case of names."""
    names = {field["name"].lower() for field in there}
    return [field for field in wanted if field["name"].lower() not in names]


def add_columns(table: DeltaTable, fields: Sequence[Mapping[str, Any]]) -> None:
    made = nullable({"type": "struct", "fields": fields})["fields"]
    table.alter.add_columns([Field.from_json(json.dumps(field)) for field in made])


def nullable(type_: Any) -> Any:
    if not isinstance(type_, dict):
        return type_
    if type_["type"] == "struct":
        fields = [{**field, "nullable": True, "type": nullable(field["type"])} for field in type_["fields"]]
        return {**type_, "fields": fields}
    return {
        key: True if key.endswith("ContainsNull") or key == "containsNull" else nullable(value)
        for key, value in type_.items()
    }


def unknown_type(type_: Any) -> str | None:
    """The first type in this one (Spark's JSON) that a table cannot have. delta-rs accepts some, such as intervals,
    that other engines cannot read."""
    if isinstance(type_, str):
        return None if type_ in TYPES or type_.startswith(("decimal", "timestamp_ntz")) else type_
    if type_["type"] not in ("struct", "array", "map"):
        return str(type_["type"])
    return next((found for each in inner(type_) if (found := unknown_type(each["type"])) is not None), None)


def inner(type_: Any) -> list[Mapping[str, Any]]:
    if not isinstance(type_, dict):
        return []
    if type_["type"] == "struct":
        return list(type_["fields"])
    if type_["type"] == "array":
        return [{"name": "element", "nullable": type_["containsNull"], "type": type_["elementType"]}]
    return [
        {"name": "key", "nullable": False, "type": type_["keyType"]},
        {"name": "value", "nullable": type_["valueContainsNull"], "type": type_["valueType"]},
    ]
