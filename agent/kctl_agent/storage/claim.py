"""What goes in and out of the second half of the contract: claims, what became of them, dead letters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kctl_agent.errors import StorageError
from kctl_agent.storage.causes import DeathCause, cause_of

if TYPE_CHECKING:
    from kctl_agent.message import Message
    from kctl_agent.storage.block import Block


@dataclass(frozen=True, slots=True)
class Claim:
    """A block that `owner` holds until it is settled or released, or its lease runs out. With as many `tries` as are
    allowed it has cost its owners their lives, and is settled with every message False."""

    id: str
    """Of the block, in this storage."""
    token: str
    """Of this lease: another claim of the same block has another one."""
    owner: str
    block: Block = field(repr=False)
    tries: int
    lease_until: float
    """When to have settled or renewed, in the claiming process's `time.monotonic()` and on the safe side."""
    messages: list[Message] = field(repr=False)

    @property
    def topic(self) -> str:
        return self.block.topic

    @property
    def partition(self) -> int:
        return self.block.partition


@dataclass(frozen=True, slots=True)
class Settled:
    """How many messages are gone for good, will come again, or became dead letters. `is_lost`: the lease was lost
    before; nothing was changed, and what was handled will be handled again."""

    gone: int = 0
    again: int = 0
    dead: int = 0
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was tried too often; or a whole block that cannot be read (`is_damaged`), with its bytes."""

    id: str
    """In this storage; "" before it is stored."""
    block: Block = field(repr=False)
    tries: int
    error: str
    """Why: the error of its last handler, or of the reader of the block."""
    at: float
    """When it died, Unix seconds."""
    is_damaged: bool = False

    @property
    def offset(self) -> int:
        return self.block.first

    @property
    def cause(self) -> DeathCause:
        return cause_of(self.error)

    def messages(self) -> list[Message]:
        """The message, or none of a damaged block."""
        return [] if self.is_damaged else self.block.messages(self.tries)


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """Some dead letters, the oldest first. `next` is where to go on, for the next call; None: these are the last. There
    may be few, or none, of a page that has read for as long as it may."""

    rows: list[DeadLetter]
    next: str | None


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters that died of the same; times in Unix seconds."""

    cause: DeathCause
    count: int
    first_died: float
    last_died: float
    newest: str
    """The id of the newest."""
    hours: tuple[int, ...] = ()
    """How many died in each of the last hours, the one that has just ended last."""


class CountChanged(StorageError):
    """There are not as many dead letters as the caller has seen; nothing was changed."""

    code = "count_changed"

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(
            f"{found} dead letters match, and {expected} were expected: nothing was changed; look again what matches"
        )
        self.expected = expected
        self.found = found


def check_count(found: int, expected: int | None) -> int:
    """The number that was found. Raises CountChanged: another one was expected."""
    if expected not in (None, found):
        raise CountChanged(expected, found)
    return found
