"""Declarations in the type of a setting, as values and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from msgspec import Meta

from kctl.config.forms import Form

T = TypeVar("T")
_WORDS = {
    str: "text",
    Literal: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a path",
    Mapping: "a table of texts",
}


def default_of(setting: Field[Any]) -> Any:
    """The default as declared, so a path may be relative; None: the setting is required."""
    if setting.default_factory is not MISSING:
        return setting.default_factory()
    return None if setting.default is MISSING else setting.default


def mark(kind: Any, of: type[T]) -> T | None:
    """Returns a mark of this kind in an annotated type: bounds, secrecy, effect or unit."""
    return next((each for each in getattr(kind, "__metadata__", ()) if isinstance(each, of)), None)


def plain(kind: Any) -> Any:
    """`tuple` for `Annotated[tuple[Path, ...], …]`."""
    return get_origin(_bare(kind)) or _bare(kind)


def items(kind: Any) -> tuple[Any, ...]:
    return get_args(_bare(kind))


def kind_words(kind: Any) -> str:
    """`a list of texts`."""
    if plain(kind) is tuple:
        return f"a list of {kind_words(items(kind)[0]).removeprefix('a ')}s"
    return _WORDS[plain(kind)]


def allowed(kind: Any) -> str:
    """`a whole number from 0 to 65535`; the words of `kind_words` if the type sets no limits."""
    words, bounds = kind_words(kind), mark(kind, Meta) or Meta()
    if plain(kind) is tuple:
        item = allowed(items(kind)[0])
        return words if item == "text" else f"{words}: {item}"
    if plain(kind) is Literal:
        return " or ".join(f'"{choice}"' for choice in items(kind))
    if bounds.le is not None:
        return f"{words} from {bounds.ge:.12g} to {bounds.le:.12g}"
    if bounds.ge is not None:
        return f"{words}, at least {bounds.ge:.12g}"
    form = mark(kind, Form)
    return form.words if form else words


def _bare(kind: Any) -> Any:
    return kind.__origin__ if get_origin(kind) is Annotated else kind
