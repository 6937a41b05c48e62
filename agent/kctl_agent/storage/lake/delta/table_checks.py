"""Checks that kctl can write a batch into a Delta table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.delta.schema_merge import inner, unknown_type
from kctl_agent.storage.lake.folder import Folder

VECTORS = "deletionVectors"
FEATURES = frozenset({"appendOnly", "invariants", "timestampNtz", VECTORS})
RETENTION = "delta.setTransactionRetentionDuration"
UNFIT = frozenset(" ,;{}()\n\t=")
"""Characters that a column's name must not have without column mapping."""


def check_features(path: Folder, state: LogState) -> None:
    features, configuration = state.features, state.configuration
    if unknown := sorted(features - FEATURES):
        raise TableRefused(f"the table {path} has features that kctl cannot write: {', '.join(unknown)}")
    reader, writer = state.protocol["minReaderVersion"], state.protocol["minWriterVersion"]
    if not features and (reader > 1 or writer > 2):
        raise TableRefused(
            f"the table {path} demands writers of version {writer} (readers of {reader}), and kctl writes version 2 (1)"
        )
    if RETENTION in configuration:
        raise TableRefused(
            f"the table {path} has {RETENTION} set, so its stored offsets would expire and messages come twice: "
            "unset it"
        )


def check_rewritable(path: Folder, state: LogState) -> None:
    """Checks that files may be replaced: added files have no deletion vectors."""
    check_features(path, state)
    if VECTORS in state.features:
        raise TableRefused(f"the table {path} has {VECTORS}, and kctl replaces none of its files: OPTIMIZE it by Spark")


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
            raise TableRefused(f"storage.partition_by names {name}, and the columns are {', '.join(names)}")
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
                f"column {name} of the table {path} is {_text(there[name]['type'])}, and the batch has "
                f"{_text(field['type'])}"
            )
    for name, field in there.items():
        absent = {"nullable": True, "type": field["type"]}
        if (place := _not_null(name, field, given.get(name, absent))) is not None:
            raise TableRefused(
                f"column {place} of the table {path} must not be null, and the batch may have nulls there"
            )


def _not_null(place: str, there: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """The first column, or part of one, that must not be null in the table but may be null in the batch."""
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


def _text(type_: Any) -> str:
    return type_ if isinstance(type_, str) else json.dumps(_plain(type_))
