"""The one way from typed rows and results to JSON: of RPC, HTTP and whatever else leaves the process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

__all__ = ["encoded"]

_PLAIN = (type(None), str, int, float, bool)


def encoded(value: Any) -> Any:
    """A row or result as JSON: by its own `to_json` where its JSON has other names, else field by field. A field that
    is marked `is_left_out` is absent while it is None."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if hasattr(kind, "to_json"):
        return {name: encoded(part) for name, part in value.to_json().items()}
    if isinstance(value, str):  # an enumeration's word
        return str(value)
    if isinstance(value, list | tuple):
        return [encoded(each) for each in value]
    if isinstance(value, Mapping):
        return {name: encoded(part) for name, part in value.items()}
    return {
        name: encoded(part)
        for name, is_left_out in _fields(kind)
        if not ((part := getattr(value, name)) is None and is_left_out)
    }


@cache
def _fields(kind: Any) -> tuple[tuple[str, bool], ...]:
    return tuple((each.name, "is_left_out" in each.metadata) for each in fields(kind))
