"""Fits the columns of a batch to those of its table: leaves out what the table lacks, widens numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kctl_agent.storage.base import TableRefused

WIDER = {("integer", "long"), ("float", "double"), ("date", "timestamp_ntz")}
"""Pairs of a type in a batch and the type in a table to which Spark widens it without loss."""


def fitted(
    there: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], *, may_add: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the columns to write (fields of Spark's JSON, all nullable), and the names of those left out.

    `may_add`: new columns stay. New fields of structs are left out in any case. Raises TableRefused: a type does not
    fit.
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
        inner = {"array": ("elementType",), "map": ("keyType", "valueType")}[there["type"]]
        nullable = {key: True for key in there if "ontainsNull" in key}
        return {
            **there,
            **nullable,
            **{key: _fitted(there[key], wanted[key], f"{place}.{key.removesuffix('Type')}", left_out) for key in inner},
        }
    if there == wanted or (isinstance(there, str) and isinstance(wanted, str) and (wanted, there) in WIDER):
        return there
    raise TableRefused(f"column {place} is {_text(there)} in the table and {_text(wanted)} in the schema")


def _fields(
    there: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], place: str, left_out: list[str]
) -> list[dict[str, Any]]:
    given = {field["name"].lower(): field for field in wanted}
    known = {field["name"].lower() for field in there}
    left_out += [f"{place}.{field['name']}" for field in wanted if field["name"].lower() not in known]
    return [
        {
            **field,
            "nullable": True,
            "type": _fitted(field["type"], found["type"], f"{place}.{field['name']}", left_out)
            if (found := given.get(field["name"].lower()))
            else field["type"],
        }
        for field in there
    ]


def _text(type_: Any) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])
