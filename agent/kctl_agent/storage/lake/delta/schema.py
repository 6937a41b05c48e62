"""Checks a table's columns and features, and fits a batch's columns to the table.

With `storage.merge_schema`, new columns are added, and are null in existing rows. Without it, new columns from a schema
registry are left out, and new columns of a transform are rejected. Numbers and dates are widened to the table's type.
Other changes of a type are rejected. A field inside a struct is never added.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from deltalake import DeltaTable, Field

from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.folder import Folder

VECTORS = "deletionVectors"
FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz", VECTORS})
RETENTION = "delta.setTransactionRetentionDuration"
UNFIT = frozenset(" ,;{}()\n\t=")  # characters that a column's name must not have without column mapping
TYPES = frozenset(
    {"string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp"}
)
"""Types that need no feature of the table. Only `timestamp_ntz` needs one, which kctl writes."""
WIDER = {("integer", "long"), ("float", "double"), ("date", "timestamp_ntz")}
"""Pairs of a type in a batch and the type in a table to which Spark widens it without loss."""


def new_columns(there: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the `wanted` columns that are not in `there`, regardless of the case of names."""
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
    """Returns the first type within `type_` that some engines cannot read, such as an interval, or None."""
    # delta-rs accepts more types than other engines can read.
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


def fitted(
    there: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], *, may_add: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the columns to write (fields of Spark's JSON, all nullable), and the names of the omitted columns.

    Pass `may_add` to keep new columns. New fields of structs are always left out. Raises TableRefused.
    """
    columns = {field["name"].lower(): field for field in there}
    made: list[dict[str, Any]] = []
    left_out: list[str] = []
    for field in wanted:
        column = columns.get(field["name"].lower())
        if column is not None:
            type_ = _fitted(column["type"], field["type"], field["name"], left_out)
            made.append({**field, "name": column["name"], "type": type_, "nullable": True})
        elif may_add:
            made.append({**field, "nullable": True})
        else:
            left_out.append(field["name"])
    return made, left_out


def _fitted(there: Any, wanted: Any, place: str, left_out: list[str]) -> Any:
    if isinstance(there, dict) and isinstance(wanted, dict) and there["type"] == wanted["type"]:
        if there["type"] == "struct":
            return {"type": "struct", "fields": _fields(there["fields"], wanted["fields"], place, left_out)}
        nullable = {key: True for key in there if "ontainsNull" in key}
        parts = [key for key in there if key.endswith("Type")]
        made = {key: _fitted(there[key], wanted[key], f"{place}.{key.removesuffix('Type')}", left_out) for key in parts}
        return {**there, **nullable, **made}
    if there == wanted or (isinstance(there, str) and isinstance(wanted, str) and (wanted, there) in WIDER):
        return there
    raise TableRefused(f"column {place} is {_text(there)} in the table and {_text(wanted)} in the schema")


def _fields(
    there: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], place: str, left_out: list[str]
) -> list[dict[str, Any]]:
    given = {field["name"].lower(): field for field in wanted}
    known = {field["name"].lower() for field in there}
    left_out += [f"{place}.{field['name']}" for field in wanted if field["name"].lower() not in known]
    made: list[dict[str, Any]] = []
    for field in there:
        found, part = given.get(field["name"].lower()), f"{place}.{field['name']}"
        type_ = _fitted(field["type"], found["type"], part, left_out) if found else field["type"]
        made.append({**field, "nullable": True, "type": type_})
    return made


def _text(type_: Any) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])


def check_features(path: Folder, state: LogState) -> None:
    features, configuration = state.features, state.configuration
    if unknown := sorted(features - FEATURES):
        raise TableRefused(f"the table {path} has features that kctl cannot write: {', '.join(unknown)}")
    reader, writer = state.protocol["minReaderVersion"], state.protocol["minWriterVersion"]
    if not features and (reader > 1 or writer > 2):
        raise TableRefused(
            f"the table {path} requires writers of version {writer} (readers of version {reader}), but kctl writes "
            "version 2 (1)"
        )
    if RETENTION in configuration:
        raise TableRefused(
            f"the table {path} has {RETENTION} set, so its stored offsets would expire and messages would be stored "
            "twice: unset it"
        )


def check_rewritable(path: Folder, state: LogState) -> None:
    """Checks that the table's files may be replaced. Raises TableRefused if the table has deletion vectors, because the
    new files would include the deleted rows."""
    check_features(path, state)
    if VECTORS in state.features:
        raise TableRefused(
            f"the table {path} has {VECTORS}, so kctl does not replace its files: OPTIMIZE it with Spark"
        )


def check_columns(wanted: Sequence[Mapping[str, Any]], partition_by: Sequence[str]) -> None:
    names = [field["name"] for field in wanted]
    if unfit := [name for name in names if UNFIT & set(name)]:
        raise TableRefused(f"a column of a Delta table cannot be called {unfit[0]!r}: rename it in the transform")
    lower = [name.lower() for name in names]
    if twice := [name for name in names if lower.count(name.lower()) > 1]:
        raise TableRefused(f"there are several columns called {twice[0]!r}: rename them in the transform")
    types = {field["name"]: field["type"] for field in wanted}
    for name, type_ in types.items():
        if (unknown := unknown_type(type_)) is not None:
            raise TableRefused(f"column {name} has the type {unknown}, which a Delta table cannot have: cast it")
    for name in partition_by:
        if name not in types:
            raise TableRefused(f"storage.partition_by names {name}, but the columns are {', '.join(names)}")
        if types[name] not in ("string", "integer", "long", "short", "byte", "date", "boolean"):
            raise TableRefused(
                f"storage.partition_by names {name}, by whose type, {types[name]}, nothing is partitioned"
            )
    if len(set(partition_by)) < len(partition_by):
        raise TableRefused(f"storage.partition_by names a column twice: {', '.join(partition_by)}")
    if len(partition_by) == len(names):
        raise TableRefused("storage.partition_by names every column: one must remain for the files")


def check_schema(
    path: Folder, state: LogState, wanted: Sequence[Mapping[str, Any]], partition_by: Sequence[str]
) -> None:
    fields = state.fields
    if any("delta.invariants" in (field.get("metadata") or {}) for field in _all_fields(fields)):
        raise TableRefused(f"the table {path} has invariants, which kctl cannot check")
    columns = state.partition_columns
    if columns != list(partition_by):
        raise TableRefused(
            f"the table {path} is partitioned by ({', '.join(columns)}), and storage.partition_by is "
            f"({', '.join(partition_by)})"
        )
    there = {field["name"]: field for field in fields}
    given = {field["name"]: field for field in wanted}
    for name, field in given.items():
        if name not in there:
            raise TableRefused(
                f"the table {path} has no column {name}: add it to the table, leave it out in the transform, or set "
                "storage.merge_schema"
            )
        if _plain(field["type"]) != _plain(there[name]["type"]):
            raise TableRefused(
                f"column {name} of the table {path} is {_shown(there[name]['type'])}, and the batch has "
                f"{_shown(field['type'])}"
            )
    for name, field in there.items():
        absent = {"nullable": True, "type": field["type"]}
        if (place := _not_null(name, field, given.get(name, absent))) is not None:
            raise TableRefused(
                f"column {place} of the table {path} must not be null, and the batch may have nulls there"
            )


def _not_null(place: str, there: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    if given["nullable"] and not there["nullable"]:
        return place
    pairs = zip(inner(there["type"]), inner(given["type"]), strict=True)
    found = (_not_null(f"{place}.{each['name']}", each, of_batch) for each, of_batch in pairs)
    return next((each for each in found if each is not None), None)


def _all_fields(fields: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for field in fields:
        yield field
        yield from _all_fields(inner(field["type"]))


def _plain(type_: Any) -> Any:
    if not isinstance(type_, dict):
        return type_
    kept = {key: value for key, value in type_.items() if not key.startswith(("contains", "valueContains"))}
    if type_["type"] == "struct":
        return {"type": "struct", "fields": [(field["name"], _plain(field["type"])) for field in type_["fields"]]}
    return {key: _plain(value) for key, value in kept.items()}


def _shown(type_: Any) -> str:
    return type_ if isinstance(type_, str) else json.dumps(_plain(type_))
