"""Decodes Avro into Python objects with fastavro, and inlines the references of a schema."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import parse_schema

from kctl_agent.errors import Undecodable
from kctl_agent.schemas.plain import MOST_LEVELS

MOST_TYPES = 20_000
"""The most types of a schema, each counted as often as it is used. A record of 3000 nullable fields has 9000."""
MOST_DECIMAL_BYTES = 1000
"""The most bytes of a decimal. Python needs 3 s to convert 100 kB, and no other thread runs meanwhile."""
NAMED = ("record", "error", "enum", "fixed")


def self_contained(text: str, referenced: Sequence[str], label: str) -> tuple[str, str]:
    """Returns the JSON of a schema with its references inlined, and the schema's name. `referenced` has the texts of
    the referenced schemas, each after the schemas that it refers to. Raises Undecodable."""
    try:
        names: dict[str, Any] = {}
        for each in referenced:
            parse_schema(json.loads(each), names)
        schema = parse_schema(json.loads(text), names)
        name = schema.get("name") or schema["type"] if isinstance(schema, dict) else schema
        inlined = json.dumps(_inlined(schema, names, set()), ensure_ascii=False)
        inlined.encode()  # fails for a lone surrogate, which no error and no view can show
        own_names: dict[str, Any] = {}
        problem = _problem(parse_schema(json.loads(inlined), own_names), own_names)
    except Exception as error:  # whatever fastavro raises for an invalid schema
        raise Undecodable(f"UnsupportedSchema: {label} is not an Avro schema: {error!r:.500}") from error
    if problem:
        raise Undecodable(f"UnsupportedSchema: {label} {problem}")
    return inlined, name if isinstance(name, str) else "union"


def decode(text: str, payload: bytes) -> Any:
    """Decodes a value that was written with the schema `text`. Raises Undecodable."""
    try:
        return fastavro.schemaless_reader(BytesIO(payload), _parsed(text), None)
    except Exception as error:  # whatever fastavro raises for bytes that do not fit
        raise Undecodable(f"BadRecord: {type(error).__name__}: {error}") from error


@cache
def _parsed(text: str) -> Any:
    return parse_schema(json.loads(text))


def _problem(schema: Any, names: Mapping[str, Any]) -> str | None:
    pending, count = [(schema, 0)], 0
    while pending:
        found, level = pending.pop()
        found, count = _resolved(found, names), count + 1
        # A recursive schema can crash fastavro, whose recursion in C has no limit.
        if level > MOST_LEVELS or count > MOST_TYPES:
            return f"is recursive, or has more than {MOST_LEVELS} levels or {MOST_TYPES} types"
        parts = found if isinstance(found, list) else []
        if isinstance(found, dict):
            parts = [field["type"] for field in found.get("fields", ())]
            parts += [found[key] for key in ("items", "values") if key in found]
            # So each byte of a message makes at most MOST_LEVELS values.
            if found["type"] != "map" and not all(_has_bytes(_resolved(part, names)) for part in parts):
                return f"cannot be decoded: {found.get('name', 'array')} has a value without bytes, such as null"
        pending += [(part, level + 1) for part in parts]
    return None


def _resolved(schema: Any, names: Mapping[str, Any]) -> Any:
    return names.get(schema, schema) if isinstance(schema, str) and schema != "null" else schema


def _has_bytes(schema: Any) -> bool:
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        return bool(schema["fields"])
    return bool(schema["size"] > 0) if kind == "fixed" else kind != "null"


def _decimal(data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> Any:
    if len(data) > MOST_DECIMAL_BYTES:
        raise ValueError(f"a decimal of {len(data)} bytes; kctl reads at most {MOST_DECIMAL_BYTES}")
    return _READ_DECIMAL(data, writer_schema, reader_schema)


_READ_DECIMAL = LOGICAL_READERS["bytes-decimal"]
# For all of the process: fastavro has no other way to limit a decimal.
LOGICAL_READERS["bytes-decimal"] = LOGICAL_READERS["fixed-decimal"] = _decimal


def _inlined(schema: Any, names: Mapping[str, Any], seen: set[str]) -> Any:
    if isinstance(schema, str):
        if schema not in names or schema in seen:
            return schema
        return _inlined(names[schema], names, seen)  # Avro requires the definition at the first use
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
