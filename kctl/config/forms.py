"""Parts of the settings' types: forms of texts, bounds, secrecy, and when a change takes effect."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta


class Effect(StrEnum):
    """When a changed setting takes effect, in words for the answer to `kctl reload`."""

    NOW = "applied"
    NEXT_START = "after the next start of a process"
    FLEET = "after `kctl stop` and `kctl start`"


class Form(NamedTuple):
    """A regular expression that must match the whole text, and its description for errors. Not `Meta`, which would
    compile it at once: that takes half of the settings' import."""

    pattern: str
    words: str


class Secrecy(Enum):
    SECRET = "it may hold a password"  # noqa: S105 - no password itself


class Unit(StrEnum):
    """The unit of a number whose name does not end with it."""

    RECORDS = "records"
    MESSAGES = "messages"
    PARTITIONS = "partitions"


NOW, NEXT_START, FLEET = Effect
RECORDS, MESSAGES, PARTITIONS = Unit
SECRET = Secrecy.SECRET


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table of kctl.toml. `effect` is for settings whose type declares none."""

    effect: ClassVar[Effect] = FLEET


def number(least: float, most: float | None = None) -> Meta:
    """Both bounds are allowed."""
    return Meta(ge=least, le=most)


def size_bytes(text: str) -> int | None:
    """`512m` -> 536870912; None for the empty text."""
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
