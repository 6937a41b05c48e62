"""A claim in the hand of a sinker, and what is to become of its messages. Pure.

Two rules make a poison message harmless to those that came with it:

- *What failed together is blamed on nobody.* Such messages come again, however often they were tried; only a message
  of which the handler has said False, or that failed alone, can become a dead letter.
- *What comes again comes alone.* A block that was handed out before is handled message by message. So a message that
  makes a whole batch fail costs the others one delivery more, the one alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kctl_agent.storage.claim import Claim

__all__ = ["NEVER", "RETURNED_FALSE", "Decision", "Held", "Part", "cut", "decide"]

NEVER = sys.maxsize
"""As `max_tries`: none of them dies."""
RETURNED_FALSE = "the handler returned False"


@dataclass(slots=True, eq=False)
class Held:
    """A claim and what its handler has said of each message: True, False, or None for nothing of this one alone."""

    claim: Claim
    acks: list[bool | None]
    errors: dict[int, str] = field(default_factory=dict)
    """Index of a message that failed alone, to the reason."""
    shared_error: str = ""
    """Why a call failed whose messages were several."""
    renew_at: float = 0.0
    is_lost: bool = False

    @classmethod
    def of(cls, claim: Claim, renew_at: float = 0.0) -> Held:
        return cls(claim, [None] * len(claim.messages), renew_at=renew_at)

    @property
    def comes_again(self) -> bool:
        """Handled message by message, see above."""
        return self.claim.tries > 0

    @property
    def has_failed(self) -> bool:
        return bool(self.shared_error) or False in self.acks

    @property
    def is_untouched(self) -> bool:
        """No message of it was given to the handler: it can be given back as it was."""
        return not self.shared_error and all(ack is None for ack in self.acks)


@dataclass(frozen=True, slots=True)
class Part:
    """Messages `begin` up to, not including, `end` of a claim, given to the handler in one call with others."""

    held: Held
    begin: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.begin

    def acknowledged(self, acks: Sequence[bool]) -> None:
        self.held.acks[self.begin : self.end] = acks

    def failed(self, error: str, is_alone: bool) -> None:
        if is_alone:
            self.held.acks[self.begin] = False
            self.held.errors[self.begin] = error
        else:
            self.held.shared_error = error


def cut(hands: Sequence[Held], size: int) -> Iterator[list[Part]]:
    """The messages of all, in order, as calls of at most `size` messages."""
    call: list[Part] = []
    room = size
    for held in hands:
        begin, count = 0, len(held.acks)
        while begin < count:
            part = Part(held, begin, min(begin + room, count))
            call.append(part)
            begin, room = part.end, room - part.count
            if room == 0:
                yield call
                call, room = [], size
    if call:
        yield call


@dataclass(frozen=True, slots=True)
class Decision:
    """`acks`, `reason` and `max_tries` are for `Storage.settle`; before it, `buried` become dead letters apart: reason
    to indexes. They are acknowledged then. The counts are of messages."""

    acks: list[bool]
    reason: str
    max_tries: int
    buried: dict[str, list[int]]
    handled: int
    again: int
    dead: int
    is_failure: bool
    """Whether what comes again has to wait; it need not if a stop was all that kept it from being handled."""


def decide(held: Held, max_tries: int, ordered: bool) -> Decision:
    """What becomes of the messages of a claim."""
    said = list(held.acks)
    if ordered and not held.comes_again:
        _hold_back(said)
    failed = [i for i, ack in enumerate(said) if ack is False]
    handled = said.count(True)
    is_last = held.claim.tries + 1 >= max_tries
    dying = failed if is_last else []
    by_reason: dict[str, list[int]] = {}
    for i in dying:
        by_reason.setdefault(held.errors.get(i, RETURNED_FALSE), []).append(i)
    counts = (handled, len(said) - handled - len(dying), len(dying))
    is_failure = bool(failed or held.shared_error)
    if dying and len(by_reason) == 1 and len(failed) + handled == len(said):
        return Decision([ack is True for ack in said], next(iter(by_reason)), max_tries, {}, *counts, is_failure)
    buried = set(dying)
    acks = [ack is True or i in buried for i, ack in enumerate(said)]
    return Decision(acks, _why(held), NEVER, by_reason, *counts, is_failure)


def _hold_back(said: list[bool | None]) -> None:
    """In order, what stands behind a failed message was not its turn: False is then no failure of its own."""
    first = next((i for i, ack in enumerate(said) if ack is not True), len(said))
    said[first + 1 :] = [ack or None for ack in said[first + 1 :]]


def _why(held: Held) -> str:
    return next(iter(held.errors.values()), held.shared_error or RETURNED_FALSE)
