"""The types of settings, and functions that describe them in words."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, get_args, get_origin

from msgspec import Meta

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


class Effect(StrEnum):
    """When a changed setting takes effect."""

    # The values are words that `kctl reload` prints.
    NOW = "applied"
    NEXT_START = "after the next start of a process"
    FLEET = "after `kctl stop` and `kctl start`"


class Form(NamedTuple):
    """A regular expression that must match a setting's whole text, and its description for errors."""

    # Not msgspec's `Meta`, which compiles the expression at import: that would double the import time.
    pattern: str
    words: str


class Secrecy(Enum):
    SECRET = "it may hold a password"  # noqa: S105 - no password itself


class Unit(StrEnum):
    """The unit of a setting whose name does not end with the unit."""

    RECORDS = "records"
    MESSAGES = "messages"
    PARTITIONS = "partitions"


NOW, NEXT_START, FLEET = Effect
RECORDS, MESSAGES, PARTITIONS = Unit
SECRET = Secrecy.SECRET


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of kctl.toml. `effect` is the default for settings whose type has no `Effect` annotation."""

    effect: ClassVar[Effect] = FLEET


def number(least: float, most: float | None = None) -> Meta:
    return Meta(ge=least, le=most)


def size_bytes(text: str) -> int | None:
    """Converts `512m` to 536870912, and the empty text to None."""
    return int(text[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[text[-1].lower()] if text else None


NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_SERVER = r"(\[[0-9A-Fa-f:]+\]|[^\s,:\[\]]+):\d{1,5}"

Name = Annotated[str, Form(NAME, "letters, digits, `.`, `_` or `-`")]
Topic = Annotated[str, Form(r"[A-Za-z0-9._-]{1,249}", "topic names of letters, digits, `.`, `_` and `-`")]
"""Kafka's own rule (org.apache.kafka.common.internals.Topic)."""
Servers = Annotated[str, Form(f"{_SERVER}(,{_SERVER})*", "`host:port`, several separated by commas")]
RedisUrl = Annotated[
    str, Form(r"(rediss?|unix)://\S+", "a URL that begins with `redis://`, `rediss://` or `unix://`"), SECRET
]
SomeSize = Annotated[str, Form(r"[1-9]\d*[kmgtKMGT]", "a number and a unit, such as `512m` or `2g`")]
Size = Annotated[str, Form(r"|[1-9]\d*[kmgtKMGT]", "a number and a unit, such as `512m` or `2g`")]
Pattern = Annotated[str, Form(r"/.+/|[^/].*|/", "a glob, or a regular expression between slashes")]
Seconds = Annotated[float, Meta(ge=0)]


def default_of(setting: Field[Any]) -> Any:
    """Returns a setting's default, or None if the setting is required."""
    if setting.default_factory is not MISSING:
        return setting.default_factory()
    return None if setting.default is MISSING else setting.default


def mark(kind: Any, of: type[T]) -> T | None:
    """Returns the first instance of `of` in the metadata of an `Annotated` type."""
    return next((each for each in getattr(kind, "__metadata__", ()) if isinstance(each, of)), None)


def plain(kind: Any) -> Any:
    """Returns the type without annotations and item types: `tuple` for `Annotated[tuple[Path, ...], …]`."""
    return get_origin(_bare(kind)) or _bare(kind)


def items(kind: Any) -> tuple[Any, ...]:
    return get_args(_bare(kind))


def kind_words(kind: Any) -> str:
    """Describes a type, such as `a list of texts`."""
    if plain(kind) is tuple:
        return f"a list of {kind_words(items(kind)[0]).removeprefix('a ')}s"
    return _WORDS[plain(kind)]


def allowed(kind: Any) -> str:
    """Describes the allowed values, such as `a whole number from 0 to 65535`."""
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
