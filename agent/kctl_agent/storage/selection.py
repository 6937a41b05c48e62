"""Criteria that select messages, declared once for storage, HTTP and the command line. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kctl_agent.errors import StorageError
from kctl_agent.message import Message
from kctl_agent.storage.causes import DeathCause
from kctl_agent.storage.claim import DeadLetter

OF_BLOCKS = frozenset({"topic", "partition", "offset_from", "offset_to", "older_than_seconds"})
INDEXED = frozenset({"topic", "partition", "older_than_seconds", "error_class", "line", "died_from", "died_to"})
"""Criteria that select without reading dead letters."""


def _by(help_: str, **more: Any) -> Any:
    return field(default=None, metadata={"help": help_, **more})


@dataclass(frozen=True, slots=True)
class Selection:
    """Criteria that select messages. A criterion of None selects all, and bounds are inclusive. If a block overlaps
    `offset_from` to `offset_to`, the whole block matches."""

    topic: str | None = _by("Only this topic.", metavar="NAME")
    partition: int | None = _by("Only this partition.", metavar="N")
    offset_from: int | None = _by("Only from this offset on.", metavar="N")
    offset_to: int | None = _by("Only up to this offset.", metavar="N")
    older_than_seconds: float | None = _by("Only messages at least this old.", metavar="SECONDS")
    error_class: str | None = _by("Only errors of this class.", metavar="NAME")
    line: str | None = _by(
        "Only errors at this line of the handler, such as shop.py:7; an empty text: only errors without a known line.",
        metavar="FILE:LINE",
        may_be_empty=True,
    )
    died_from: float | None = _by("Only dead letters from this time on.", metavar="TIME")
    died_to: float | None = _by("Only dead letters up to this time.", metavar="TIME")
    tries_from: int | None = _by("Only messages with at least this many tries.", metavar="N")
    tries_to: int | None = _by("Only messages with at most this many tries.", metavar="N")
    key: str | None = _by("Only messages with this key.", metavar="TEXT")
    text: str | None = _by("Only messages with this text in their value.", metavar="TEXT")
    traceback: str | None = _by("Only errors with this text in their message or traceback.", metavar="TEXT")
    ids: tuple[str, ...] | None = _by("Only these dead letters.", metavar="ID")

    @property
    def named(self) -> dict[str, Any]:
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: value for name, value in values if value is not None}

    @property
    def is_indexed(self) -> bool:
        return INDEXED.issuperset(self.named)

    def dated(self, now: float) -> Selection:
        if self.older_than_seconds is None:
            return self
        latest = now - self.older_than_seconds
        died_to = latest if self.died_to is None else min(latest, self.died_to)
        return replace(self, older_than_seconds=None, died_to=died_to)

    def of_blocks(self) -> Selection:
        """Returns this selection if it can select pending messages. Otherwise raises StorageError."""
        if more := sorted(set(self.named) - OF_BLOCKS):
            raise StorageError(f"pending messages cannot be selected by {', '.join(more)}, only dead letters can")
        return self

    def takes_partition(self, topic: str, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)

    def takes_cause(self, cause: DeathCause) -> bool:
        return self.error_class in (None, cause.error_class) and self.line in (None, cause.line)

    def takes_dead_letter(self, dead_letter: DeadLetter) -> bool:
        """Whether a dead letter matches. Ignores `older_than_seconds`, which `dated` replaces with `died_to`."""
        block = dead_letter.block
        return (
            self.takes_partition(block.topic, block.partition)
            and (self.offset_from is None or block.last >= self.offset_from)
            and (self.offset_to is None or block.first <= self.offset_to)
            and (self.ids is None or dead_letter.id in self.ids)
            and _is_between(dead_letter.at, self.died_from, self.died_to)
            and _is_between(dead_letter.tries, self.tries_from, self.tries_to)
            and (self.traceback is None or self.traceback in dead_letter.error)
            and (self.error_class is self.line is None or self.takes_cause(dead_letter.cause))
            and ((self.key is None and self.text is None) or any(map(self._takes_message, _messages(dead_letter))))
        )

    def _takes_message(self, message: Message) -> bool:
        return (self.key is None or message.key == self.key.encode()) and (
            self.text is None or self.text.encode() in (message.value or b"")
        )


EVERYTHING = Selection()


def is_id_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 19


def _is_between(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def _messages(dead_letter: DeadLetter) -> Iterator[Message]:
    with suppress(StorageError):
        yield from dead_letter.messages()
