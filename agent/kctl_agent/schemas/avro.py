"""Decodes Avro into Python objects with fastavro, and inlines the references of a schema."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any

import fastavro
from fastavro.schema import parse_schema

from kctl_agent.errors import Undecodable

NAMED = ("record", "error", "enum", "fixed")


def self_contained(text: str, referenced: Sequence[str], label: str) -> tuple[str, str]:
    """Returns the JSON of a schema with every reference replaced by its definition, and the schema's name. `referenced`
    are the texts of schemas, each after those that it refers to. Raises Undecodable."""
    try:
        names: dict[str, Any] = {}
        for each in referenced:
            parse_schema(json.loads(each), names)
        schema = parse_schema(json.loads(text), names)
    except Exception as error:  # whatever fastavro raises for an invalid schema
        raise Undecodable(f"UnsupportedSchema: {label} is not an Avro schema: {error}") from error
    name = schema.get("name") or schema["type"] if isinstance(schema, dict) else schema
    return json.dumps(_inlined(schema, names, set())), name if isinstance(name, str) else "union"


def decode(text: str, payload: bytes) -> Any:
    """Decodes a value that was written with this schema. Raises Undecodable."""
    try:
        return fastavro.schemaless_reader(BytesIO(payload), _parsed(text), None)
    except Exception as error:  # whatever fastavro raises for bytes that do not fit
        raise Undecodable(f"BadRecord: {type(error).__name__}: {error}") from error


@cache
def _parsed(text: str) -> Any:
    return parse_schema(json.loads(text))


def _inlined(schema: Any, names: Mapping[str, Any], seen: set[str]) -> Any:
    """Replaces the first use of a referenced name by its definition."""
    if isinstance(schema, str):
        if schema not in names or schema in seen:
            return schema
        return _inlined(names[schema], names, seen)
    if isinstance(schema, list):
        return [_inlined(each, names, seen) for each in schema]
    kind = schema.get("type")
    if kind in NAMED:
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    found = {key: value for key, value in schema.items() if not key.startswith("__")}
    if kind in ("record", "error"):
        fields = [{**field, "type": _inlined(field["type"], names, seen)} for field in schema["fields"]]
        return {**found, "fields": fields}
    for key in ("items", "values"):
        if key in found:
            found[key] = _inlined(found[key], names, seen)
    return found if kind in NAMED or isinstance(kind, str) else {**found, "type": _inlined(kind, names, seen)}
