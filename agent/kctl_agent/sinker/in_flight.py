"""A claim in flight at a sinker, and what is to become of its messages. Pure.

Two rules make a poison message harmless to those that came with it:

- *What failed together is blamed on nobody.* Such messages come again, however often they were tried; only a message
  of which the handler returned False or a reason, or that failed alone, can become a dead letter.
- *What comes again comes alone.* A block that was handed out before is handled message by message. So a message that
  makes a whole batch fail costs the others one delivery more, the one alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kctl_agent.storage.causes import RETURNED_FALSE
from kctl_agent.storage.claim import Claim

Ack = bool | str
"""A handler's result for one message: done, not done, or not done with the reason."""


@dataclass(slots=True, eq=False)
class InFlightClaim:
    """A claim, and what its handler returned for each message: True, False, or None for nothing of this one alone."""

    claim: Claim
    acks: list[bool | None]
    errors: dict[int, str] = field(default_factory=dict)
    """Reasons of messages that failed for themselves, by index."""
    shared_error: str = ""
    """Why a call with several messages failed."""
    renew_at: float = 0.0
    is_lost: bool = False

    @classmethod
    def of(cls, claim: Claim, renew_at: float = 0.0) -> InFlightClaim:
        return cls(claim, [None] * len(claim.messages), renew_at=renew_at)

    @property
    def comes_again(self) -> bool:
        """Whether messages are handled one by one, see above."""
        return self.claim.tries > 0

    @property
    def has_failed(self) -> bool:
        return bool(self.shared_error) or False in self.acks

    @property
    def is_untouched(self) -> bool:
        """Whether no message of it was given to the handler: it can be given back as it was."""
        return not self.shared_error and all(ack is None for ack in self.acks)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a claim: messages `begin` up to, not including, `end`, given to the handler in one call with others."""

    claimed: InFlightClaim
    begin: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.begin

    def acknowledged(self, acks: Sequence[Ack]) -> None:
        are_done = [ack is True for ack in acks]
        self.claimed.acks[self.begin : self.end] = are_done
        if False in are_done:
            self.claimed.errors.update((self.begin + i, ack) for i, ack in enumerate(acks) if isinstance(ack, str))

    def failed(self, error: str, is_alone: bool) -> None:
        if is_alone:
            self.claimed.acks[self.begin] = False
            self.claimed.errors[self.begin] = error
        else:
            self.claimed.shared_error = error


def cut(in_flight: Sequence[InFlightClaim], size: int) -> Iterator[list[Part]]:
    """Cuts the messages of all claims, in order, into calls of at most `size` messages."""
    call: list[Part] = []
    room = size
    for claimed in in_flight:
        begin, count = 0, len(claimed.acks)
        while begin < count:
            part = Part(claimed, begin, min(begin + room, count))
            call.append(part)
            begin, room = part.end, room - part.count
            if room == 0:
                yield call
                call, room = [], size
    if call:
        yield call


@dataclass(frozen=True, slots=True)
class Decision:
    """How a claim is settled. `acks` and `dead_lettered`, index to reason, are for `Storage.settle`; the counts are of
    messages."""

    acks: list[bool]
    dead_lettered: dict[int, str]
    handled: int
    again: int
    is_failure: bool
    """Whether messages that come again have to wait; not if a stop was all that kept them from being handled."""


def decide(claimed: InFlightClaim, max_tries: int, ordered: bool) -> Decision:
    """Decides what becomes of the messages of a claim."""
    results = list(claimed.acks)
    if ordered and not claimed.comes_again:
        _hold_back(results)
    failed = [i for i, ack in enumerate(results) if ack is False]
    handled = results.count(True)
    is_last = claimed.claim.tries + 1 >= max_tries
    dying = {i: claimed.errors.get(i, RETURNED_FALSE) for i in failed} if is_last else {}
    again = len(results) - handled - len(dying)
    acks = [ack is True for ack in results]
    return Decision(acks, dying, handled, again, bool(failed or claimed.shared_error))


def _hold_back(results: list[bool | None]) -> None:
    """Clears failures behind a failed message: in order these were not to be handled yet, and did not fail."""
    first = next((i for i, ack in enumerate(results) if ack is not True), len(results))
    results[first + 1 :] = [ack or None for ack in results[first + 1 :]]
