"""The one way from typed replies to JSON."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

__all__ = ["aged", "encoded", "fields_of", "renamed"]

R = TypeVar("R")
_PLAIN: Final = frozenset({type(None), str, int, float, bool})
_PLAIN_NAMES: Final = frozenset({"None", "str", "int", "float", "bool"})


def renamed(kind: type, attribute: str, name: str) -> None:
    """Gives a field of a dataclass the name `name` in JSON, where that is a keyword of Python. msgspec, which decodes,
    takes a dataclass's fields by their names, and has renaming for its own types alone."""
    declared: Any = kind
    found = declared.__dataclass_fields__
    found[attribute].name = name
    declared.__dataclass_fields__ = {name if key == attribute else key: each for key, each in found.items()}
    declared.__annotations__[name] = declared.__annotations__[attribute]
    setattr(kind, name, declared.__dict__[attribute])


def encoded(value: Any, older_by: float = 0.0) -> Any:
    """A reply, a row or a result as JSON: field by field, or by its own `to_json` where its JSON has other names.
    `older_by` is for how many seconds it has been kept: its ages are so much greater."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if hasattr(kind, "to_json"):
        return {name: encoded(part) for name, part in value.to_json().items()}
    if isinstance(value, str):  # an enumeration's word
        return str(value)
    if isinstance(value, list | tuple):
        return [encoded(each, older_by) for each in value]
    if isinstance(value, Mapping):
        return {name: encoded(part) for name, part in value.items()}
    return _fields_encoded(value, older_by)


def aged(reply: R, seconds: float) -> R:
    """The reply after it has been kept for so long."""
    declared: Any = reply
    kind: Any = type(reply)
    shape = _shape(kind)
    parts = {name: part + seconds for name in shape.ages if (part := getattr(reply, name)) is not None}
    nested = {name: getattr(reply, name) for name in shape.nested}
    parts |= {name: aged(part, seconds) for name, part in nested.items() if hasattr(part, "__dataclass_fields__")}
    older: R = replace(declared, **parts)
    return older


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by their names, as they are."""
    kind: Any = type(value)
    shape = _shape(kind)
    return dict(zip(shape.names, shape.values(value), strict=True))


class _Shape(NamedTuple):
    """The fields of a dataclass, by what encoding does with them."""

    names: tuple[str, ...]
    values: Callable[[Any], tuple[Any, ...]]
    ages: tuple[str, ...]
    nested: tuple[str, ...]
    left_out: tuple[str, ...]


@cache
def _shape(kind: Hashable) -> _Shape:
    if hasattr(kind, "__struct_fields__"):  # a type of msgspec's, which the control plane has: no field is marked
        names = tuple(kind.__struct_fields__)
        return _Shape(names, _getter(names), (), names, ())
    declared = fields(cast(Any, kind))
    names = tuple(each.name for each in declared)

    def marked(mark: str) -> tuple[str, ...]:
        return tuple(each.name for each in declared if mark in each.metadata)

    nested = tuple(each.name for each in declared if not _PLAIN_NAMES.issuperset(str(each.type).split(" | ")))
    return _Shape(names, _getter(names), marked("is_age"), nested, marked("is_left_out"))


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    return attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)


def _fields_encoded(value: Any, older_by: float) -> dict[str, Any]:
    kind: Any = type(value)
    shape, document = _shape(kind), fields_of(value)
    for name in shape.nested:
        document[name] = encoded(document[name], older_by)
    for name in shape.ages if older_by else ():
        if document[name] is not None:
            document[name] += older_by
    for name in shape.left_out:
        if document[name] is None:
            del document[name]
    return document
