"""What was seen of one partition over a window in time: bounded in memory, without a clock of its own.

All times are seconds of one monotonic clock, the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Observation", "Rewind", "Window"]

_KEPT = 60
"""Observations of an active partition in one span; at ten thousand partitions that is about 60 MB."""


class Observation(NamedTuple):
    """Both offsets were told at `at`."""

    at: float
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(self.end - self.committed, 0)


@dataclass(frozen=True, slots=True)
class Rewind:
    at: float
    from_offset: int
    to_offset: int


class Window:
    """One partition's observations, newest last. Not thread-safe."""

    __slots__ = ("_kept", "_newest", "anchor", "moved_at", "rewind", "waiting_since")

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._kept: list[Observation] = []
        self._newest: Observation | None = None
        self.moved_at: float | None = None
        """When the committed offset was last seen to be another than before."""
        self.waiting_since: float | None = None
        """Since when messages have been waiting without any being committed; None while none wait."""
        self.rewind: Rewind | None = None
        """The last time the committed offset went back, until it is where it was."""
        self.anchor: float | None = None
        """The last time at which the log ended at or before what is committed now: all that waits came later."""

    @property
    def newest(self) -> Observation | None:
        return self._newest

    def add(self, new: Observation, span_seconds: float) -> None:
        """Takes the latest figures; those that are no later than the last are no news. Forgets what lies before the
        span. A log that ends earlier than it did is another log: nothing of the old one is kept."""
        old = self._newest
        if old is not None and new.at <= old.at:
            return
        if old is not None and new.end < old.end:
            self._forget()
            old = None
        if old is not None:
            self._keep(old, new, span_seconds)
        self._note(old, new)
        self._newest = new
        self._look_for_anchor(new)

    def seen(self, since: float) -> Iterator[Observation]:
        """The observations from `since` on, oldest first, and before them the one that held when it began."""
        first = next((i for i, each in enumerate(self._kept) if each.at > since), len(self._kept))
        yield from self._kept[max(first - 1, 0) :]
        if self._newest is not None:
            yield self._newest

    def _keep(self, old: Observation, new: Observation, span_seconds: float) -> None:
        kept = self._kept
        is_middle_of_a_run = bool(kept) and kept[-1][1:] == old[1:] == new[1:]
        if not is_middle_of_a_run and (not kept or old.at - kept[-1].at >= span_seconds / _KEPT):
            kept.append(old)
        # The newest of those before the span stays: it says what held when the span began.
        while len(kept) > 1 and kept[1].at <= new.at - span_seconds:
            del kept[0]

    def _note(self, old: Observation | None, new: Observation) -> None:
        if old is not None and new.committed != old.committed:
            self.moved_at = new.at
            if new.committed < old.committed:
                self.rewind = Rewind(new.at, old.committed, new.committed)
        if self.rewind is not None and new.committed >= self.rewind.from_offset:
            self.rewind = None
        if new.lag == 0:
            self.waiting_since = None
        elif self.waiting_since is None or self.moved_at == new.at:
            self.waiting_since = new.at

    def _look_for_anchor(self, new: Observation) -> None:
        if new.lag == 0:
            self.anchor = new.at
            return
        if self.rewind is not None and self.rewind.at == new.at:
            self.anchor = None
        for each in reversed(self._kept):
            if self.anchor is not None and each.at <= self.anchor:
                return
            if each.end <= new.committed:
                self.anchor = each.at
                return
