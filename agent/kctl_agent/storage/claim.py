"""Types of the sinkers' part of the storage contract. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from kctl_agent.errors import StorageError
from kctl_agent.storage.causes import DeathCause, cause_of

if TYPE_CHECKING:
    from kctl_agent.message import Message
    from kctl_agent.storage.block import Block

HOUR_SECONDS = 3600.0
Errors: TypeAlias = str | Sequence[str]  # one error for all messages, or one each
NONE_DEAD: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Claim:
    """A leased block. `tries` counts earlier deliveries that failed or whose owner died."""

    id: str
    token: str
    owner: str
    block: Block = field(repr=False)
    tries: int
    messages: list[Message] = field(repr=False)

    @property
    def topic(self) -> str:
        return self.block.topic

    @property
    def partition(self) -> int:
        return self.block.partition


@dataclass(frozen=True, slots=True)
class Settled:
    """The numbers of messages that `settle` removed, retried and dead-lettered. They are 0 if the lease was lost."""

    gone: int = 0
    again: int = 0
    dead: int = 0
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be handled, or a whole unreadable block with its bytes (`is_damaged`)."""

    id: str  # "" before it is stored
    block: Block = field(repr=False)
    tries: int
    error: str
    at: float  # Unix seconds
    is_damaged: bool = False

    @property
    def offset(self) -> int:
        return self.block.first

    @property
    def cause(self) -> DeathCause:
        return cause_of(self.error)

    def messages(self) -> list[Message]:
        return [] if self.is_damaged else self.block.messages(self.tries)


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """A page of dead letters, oldest first. `next` is None on the last page. An earlier page may be empty."""

    rows: list[DeadLetter]
    next: str | None


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters with the same cause. Times are Unix seconds."""

    cause: DeathCause
    count: int
    first_died: float
    last_died: float
    newest: str
    hours: tuple[int, ...] = ()  # deaths in each of the last hours; the current hour is last


class CountChanged(StorageError, code="count_changed"):
    """The number of matching dead letters differs from the expected number. The error has both numbers. Nothing was
    changed. List the dead letters again."""

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(
            f"{found} dead letters match, but {expected} were expected; nothing was changed. List what matches again"
        )
        self.expected = expected
        self.found = found


def check_count(found: int, expected: int | None) -> int:
    if expected not in (None, found):
        raise CountChanged(expected, found)
    return found


class GroupCount:
    def __init__(self, cause: DeathCause, hours: int) -> None:
        self.cause = cause
        self.count = 0
        self._first = self._last = 0.0
        self._newest = ""
        self._hours = [0] * hours

    def add(self, count: int, first: float, last: float, newest: str, recent: Iterable[int] = ()) -> None:
        """Adds dead letters to the group. `recent` counts them for each of the last hours, the current hour first."""
        self._first = min(self._first, first) if self.count else first
        if not self.count or last >= self._last:
            self._last, self._newest = last, newest
        self.count += count
        for ago, died in enumerate(recent):
            self._hours[-1 - ago] += died

    def add_of_hour(self, count: int, first: float, last: float, newest: str, ago: int) -> None:
        recent = [0] * ago + [count] if 0 <= ago < len(self._hours) else ()
        self.add(count, first, last, newest, recent)

    def group(self) -> DeadLetterGroup:
        return DeadLetterGroup(self.cause, self.count, self._first, self._last, self._newest, tuple(self._hours))


def grouped(dead_letters: Iterable[DeadLetter], hours: int, now: float) -> list[DeadLetterGroup]:
    found: dict[DeathCause, GroupCount] = {}
    for each in dead_letters:
        count = found.setdefault(each.cause, GroupCount(each.cause, hours))
        count.add_of_hour(1, each.at, each.at, each.id, int((now - each.at) // HOUR_SECONDS))
    return [count.group() for count in sorted(found.values(), key=lambda count: (-count.count, count.cause))]
