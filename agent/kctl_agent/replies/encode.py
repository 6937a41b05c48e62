"""Encodes typed replies to JSON."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import Field, fields, replace
from functools import cache, partial
from keyword import iskeyword
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

R = TypeVar("R")
_Encoder: TypeAlias = Callable[[Any, float], Any]
_PLAIN: Final = frozenset({type(None), str, int, float, bool})
_PLAIN_NAMES: Final = frozenset({"None", "str", "int", "float", "bool"})


def renamed(kind: type, attribute: str, name: str) -> None:
    """Gives a field a JSON name that is a Python keyword."""
    declared: Any = kind
    found = declared.__dataclass_fields__
    found[attribute].name = name
    declared.__dataclass_fields__ = {name if key == attribute else key: each for key, each in found.items()}
    declared.__annotations__[name] = declared.__annotations__[attribute]
    setattr(kind, name, declared.__dict__[attribute])


def encoded(value: Any, older_by: float = 0.0) -> Any:
    """Converts a value to JSON, by its `to_json` or field by field. Adds `older_by` seconds to fields that are ages."""
    kind: Any = type(value)
    return _encoder(kind)(value, older_by)


def aged(reply: R, seconds: float) -> R:
    declared: Any = reply
    kind: Any = type(reply)
    shape = _shape(kind)
    parts = {name: part + seconds for name in shape.ages if (part := getattr(reply, name)) is not None}
    nested = {name: getattr(reply, name) for name in shape.nested}
    parts |= {name: aged(part, seconds) for name, part in nested.items() if hasattr(part, "__dataclass_fields__")}
    older: R = replace(declared, **parts)
    return older


def fields_of(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _shape(kind).names}


class _Shape(NamedTuple):
    names: tuple[str, ...]
    ages: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


@cache
def _shape(kind: Hashable) -> _Shape:
    if hasattr(kind, "__struct_fields__"):  # a type of msgspec's, which the control plane has: no field is marked
        names = tuple(kind.__struct_fields__)
        return _Shape(names, nested=names)
    declared = fields(cast(Any, kind))

    def marked(mark: str) -> tuple[str, ...]:
        return tuple(each.name for each in declared if mark in each.metadata)

    nested = tuple(each.name for each in declared if not _PLAIN_NAMES.issuperset(_type_name(each).split(" | ")))
    return _Shape(tuple(each.name for each in declared), marked("is_age"), nested, marked("is_left_out"))


def _type_name(declared: Field[Any]) -> str:
    return declared.type.__name__ if isinstance(declared.type, type) else str(declared.type)


@cache
def _encoder(kind: Any) -> _Encoder:
    if kind in _PLAIN:
        return lambda value, _: value
    if hasattr(kind, "to_json"):
        return lambda value, _: _mapping_encoded(value.to_json())
    if issubclass(kind, str):  # an enumeration's word
        return lambda value, _: str(value)
    if issubclass(kind, list | tuple):
        return _list_encoded
    if issubclass(kind, Mapping):
        return lambda value, _: _mapping_encoded(value)
    return _fields_encoder(_shape(kind))


def _mapping_encoded(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part if type(part) in _PLAIN else encoded(part) for name, part in value.items()}


def _list_encoded(value: Sequence[Any], older_by: float) -> list[Any]:
    kinds = set(map(type, value))
    if kinds <= _PLAIN:
        return list(value)
    if len(kinds) == 1:
        encode = _encoder(kinds.pop())
        return [encode(each, older_by) for each in value]
    return [encoded(each, older_by) for each in value]


def _fields_encoder(shape: _Shape) -> _Encoder:
    def part(name: str) -> str:
        own = f"getattr(v, {name!r})" if iskeyword(name) else f"v.{name}"
        if name in shape.nested:
            return f"encoded({own}, o)"
        return f"None if {own} is None else {own} + o" if name in shape.ages else own

    # A loop over the fields would take three times as long.
    written = ", ".join(f"{name!r}: {part(name)}" for name in shape.names)
    encode: _Encoder = eval(f"lambda v, o: {{{written}}}", {"encoded": encoded})  # noqa: S307 - of names in our code
    return partial(_without_absent, encode, shape.left_out) if shape.left_out else encode


def _without_absent(encode: _Encoder, names: Sequence[str], value: Any, older_by: float) -> Any:
    document = encode(value, older_by)
    for name in names:
        if document[name] is None:
            del document[name]
    return document
