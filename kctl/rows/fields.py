"""Single fields out of JSON objects, checked. Absent and null are unknown: None.

Every function raises `BadResult` for a value of another type, or a number that does not fit into 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from kctl_agent.wire import JsonObject

__all__ = [
    "NUMBER_OR_NONE",
    "TEXT",
    "TEXT_OR_NONE",
    "WHOLE",
    "WHOLE_OR_NONE",
    "BadResult",
    "Kind",
    "columns",
    "count",
    "flag",
    "nodes",
    "number",
    "object_of",
    "objects",
    "required",
    "text",
    "whole",
]

R = TypeVar("R")

_MOST = 2**62
"""Offsets are 64 bits wide, and so is what is kept of them and of their differences."""

Kind = tuple[frozenset[type], str]
"""The types that a column may hold, and what they are called in a message."""

TEXT: Kind = (frozenset({str}), "a text")
TEXT_OR_NONE: Kind = (frozenset({str, type(None)}), "a text")
WHOLE: Kind = (frozenset({int}), "a whole number")
WHOLE_OR_NONE: Kind = (frozenset({int, type(None)}), "a whole number")
NUMBER_OR_NONE: Kind = (frozenset({int, float, type(None)}), "a number")


class BadResult(ValueError):
    """A result that does not have the shape of its command; the message names the field."""


def required(value: R | None, name: str) -> R:
    if value is None:
        raise BadResult(f'"{name}" is missing')
    return value


def text(row: JsonObject, name: str) -> str | None:
    value = row.get(name)
    if value is None or type(value) is str:
        return value
    raise BadResult(f'"{name}" is not a text')


def whole(row: JsonObject, name: str) -> int | None:
    value = row.get(name)
    if value is None or (type(value) is int and -_MOST < value < _MOST):
        return value
    raise BadResult(f'"{name}" is not a whole number')


def count(row: JsonObject, name: str) -> int | None:
    value = whole(row, name)
    if value is None or value >= 0:
        return value
    raise BadResult(f'"{name}" is below 0')


def number(row: JsonObject, name: str) -> float | None:
    value = row.get(name)
    if value is None or (type(value) in (int, float) and -_MOST < value < _MOST):
        return value
    raise BadResult(f'"{name}" is not a number')


def flag(row: JsonObject, name: str) -> bool | None:
    value = row.get(name)
    if value is None or type(value) is bool:
        return value
    raise BadResult(f'"{name}" is neither true nor false')


def object_of(value: object, name: str) -> JsonObject:
    if isinstance(value, dict):
        return value
    raise BadResult(f'"{name}" holds something else than objects')


def objects(row: JsonObject, name: str) -> Iterable[JsonObject] | None:
    value = row.get(name)
    if value is None:
        return None
    if type(value) is not list:
        raise BadResult(f'"{name}" is not a list')
    return [object_of(each, name) for each in value]


def nodes(row: JsonObject, name: str) -> tuple[int, ...] | None:
    value = row.get(name)
    if value is None:
        return None
    if type(value) is not list or not WHOLE[0].issuperset(map(type, value)):
        raise BadResult(f'"{name}" is not a list of whole numbers')
    return tuple(value)


def columns(result: JsonObject, name: str, kinds: Mapping[str, Kind]) -> list[tuple[Any, ...]]:
    """The columns of the list of rows `name`, in the order of `kinds`. Rows come by the thousand, so they are checked
    column by column."""
    rows = result.get(name)
    if rows is None:
        rows = []
    if type(rows) is not list:
        raise BadResult(f'"{name}" is not a list')
    try:
        found = _values(rows, kinds)
    except (KeyError, TypeError):
        absent: JsonObject = dict.fromkeys(kinds)
        found = _values([{**absent, **object_of(row, name)} for row in rows], kinds)
    for (field, (types, wanted)), column in zip(kinds.items(), found, strict=True):
        types_found = set(map(type, column))
        if not types_found <= types or not (str in types or _is_in_range(column, type(None) in types_found)):
            raise BadResult(f'"{field}" of a row is not {wanted}')
    return found


def _values(rows: Sequence[JsonObject], names: Iterable[str]) -> list[tuple[Any, ...]]:
    """By columns without a tuple for each row, which would keep the garbage collector busy."""
    return [tuple(map(itemgetter(name), rows)) for name in names]


def _is_in_range(column: Sequence[Any], has_unknown: bool) -> bool:
    numbers = [each for each in column if each is not None] if has_unknown else column
    return not numbers or (min(numbers) > -_MOST and max(numbers) < _MOST)
