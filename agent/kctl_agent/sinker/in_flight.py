"""Decides what happens to each message of a claim after the handler was called. Pure.

Two rules keep a poison message from harming its neighbours:

- *A shared failure is not blamed on a message.* If a call with several messages fails, all are retried, even after
  `max_tries`. A message can become a dead letter only if it failed alone, or if the handler's result for it was
  False or a reason.
- *Retries are handled one by one.* If one message makes a call fail, each neighbour is delivered only one more time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kctl_agent.storage.causes import RETURNED_FALSE
from kctl_agent.storage.claim import Claim

Ack = bool | str  # a handler's result for a message: done, not done, or the reason why not


class Final(str):
    """Why a message failed, if no retry can help. The message becomes a dead letter at once."""

    __slots__ = ()


@dataclass(slots=True, eq=False)
class InFlightClaim:
    """A claim that is being handled. `acks` has None for a message that is not handled yet, or that was in a failed
    call with several messages."""

    claim: Claim
    acks: list[bool | None]
    errors: dict[int, str] = field(default_factory=dict)
    shared_error: str = ""
    renew_at: float = 0.0
    is_lost: bool = False

    @classmethod
    def of(cls, claim: Claim, renew_at: float = 0.0) -> InFlightClaim:
        return cls(claim, [None] * len(claim.messages), renew_at=renew_at)

    @property
    def comes_again(self) -> bool:
        return self.claim.tries > 0

    @property
    def has_failed(self) -> bool:
        return bool(self.shared_error) or False in self.acks

    @property
    def is_untouched(self) -> bool:
        """True until a handler call returns or fails. Until then, the claim can be released unchanged."""
        return not self.shared_error and all(ack is None for ack in self.acks)


@dataclass(frozen=True, slots=True)
class Part:
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
    acks: list[bool]
    dead_lettered: dict[int, str]
    handled: int
    again: int
    is_failure: bool
    """Whether retries have to wait: false if only a stop kept messages from being handled."""


def decide(claimed: InFlightClaim, max_tries: int, ordered: bool) -> Decision:
    results = list(claimed.acks)
    if ordered and not claimed.comes_again:
        _hold_back(results)  # messages after the first failure should not have been handled yet
    failed = [i for i, ack in enumerate(results) if ack is False]
    handled = results.count(True)
    is_last = claimed.claim.tries + 1 >= max_tries
    errors = {i: claimed.errors.get(i, RETURNED_FALSE) for i in failed}
    dying = {i: error for i, error in errors.items() if is_last or isinstance(error, Final)}
    again = len(results) - handled - len(dying)
    acks = [ack is True for ack in results]
    return Decision(acks, dying, handled, again, bool(failed or claimed.shared_error))


def _hold_back(results: list[bool | None]) -> None:
    first = next((i for i, ack in enumerate(results) if ack is not True), len(results))
    results[first + 1 :] = [ack or None for ack in results[first + 1 :]]
