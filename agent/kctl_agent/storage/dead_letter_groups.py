"""Counts dead letters by cause. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kctl_agent.storage.causes import DeathCause
from kctl_agent.storage.claim import DeadLetter, DeadLetterGroup

HOUR_SECONDS = 3600.0


class GroupCount:
    def __init__(self, cause: DeathCause, hours: int) -> None:
        self.cause = cause
        self.count = 0
        self._first = self._last = 0.0
        self._newest = ""
        self._hours = [0] * hours

    def add(self, count: int, first: float, last: float, newest: str, recent: Iterable[int] = ()) -> None:
        """`recent`: deaths in each of the last hours, the current hour first."""
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
