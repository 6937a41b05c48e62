"""What was seen of one partition over a window in time: bounded in memory, without a clock of its own.

All times are seconds of one monotonic clock, the caller's. Kept as columns of plain numbers: of ten thousand partitions
as objects they would be half a million, which the garbage collector looks through again and again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple

__all__ = ["Observation", "Removal", "Rewind", "Uncommitted", "Window"]

_KEPT = 64
_THINNED = 48
"""Observations of an active partition, and how many are left of so many; at ten thousand partitions that is 20 MB."""
_DETAIL = 6.0
"""From one observation to the next it is about this part of their age."""
_PACE_SECONDS = 60.0
"""For so long messages must have arrived before it is a pace."""
_BETWEEN_REMOVALS_SECONDS = 300.0
"""How often a broker looks for what to remove (`log.retention.check.interval.ms`)."""
_SILENCES = 8
_SILENCES_LEARNED = 3
_GAP_SECONDS = 10.0
_GAP_INTERVALS = 3.0
"""Offsets that come later than this, and than so many intervals, were not to be had meanwhile."""


class Observation(NamedTuple):
    """Both offsets were reported at `at`."""

    at: float
    committed: int
    end: int
    start: int | None = None

    @property
    def lag(self) -> int:
        lag = self.end - self.committed
        return lag if lag > 0 else 0  # a third of the time of max()


@dataclass(frozen=True, slots=True)
class Rewind:
    """The last time the offset went back, and the highest offset that it had before."""

    at: float
    from_offset: int
    to_offset: int


class Removal(NamedTuple):
    """The log start, and how far the group was, when retention had just removed something."""

    at: float
    start: int
    committed: int


class Uncommitted(StrEnum):
    """Why there is no committed offset."""

    NEVER = "nothing was ever committed"
    GONE = "the committed offset is gone"
    """Deleted with its group, or expired."""


class Window:
    """One partition's observations. Not thread-safe.

    `at`, `committed` and `end` are its columns, oldest first, the newest last; to be read only. Ends never fall.
    """

    __slots__ = (
        "_caught_up_at",
        "_silences",
        "ahead_since",
        "at",
        "cadence_seconds",
        "committed",
        "end",
        "gap",
        "interval_seconds",
        "is_lag_known",
        "left_over",
        "moved_at",
        "newest",
        "removals",
        "rewind",
        "start",
        "uncommitted",
        "waiting_since",
    )

    def __init__(
        self,
        uncommitted: Uncommitted | None = None,
        *,
        is_lag_known: bool = True,
        committed_at: float | None = None,
    ) -> None:
        """Of a partition without a committed offset `committed` is what lag is counted from instead; where that is not
        known either, the log start. `committed_at`: when the first commit was seen, if it was."""
        self.uncommitted = uncommitted
        self.is_lag_known = is_lag_known
        self._forget(committed_at)

    def _forget(self, committed_at: float | None = None) -> None:
        self.at, self.committed, self.end = array("d"), array("q"), array("q")
        self.newest: Observation | None = None
        self.moved_at = committed_at
        """When the committed offset was last seen to be another than before."""
        self.left_over = 0
        """The lag right after the last commit."""
        self.waiting_since: float | None = None
        """Since when messages have been waiting without any being committed; None while none wait. It moves along
        with time in which nothing was seen: a commit may have been made then, or may not have been possible."""
        self.cadence_seconds: float | None = None
        """For how long messages usually wait for a commit; None while there were too few."""
        self._silences = array("d")
        self.gap: tuple[float, float] | None = None
        """The last time in which nothing was seen."""
        self.interval_seconds = 0.0
        """From the last observation but one to the last."""
        self.rewind: Rewind | None = None
        """None once the committed offset is where it was."""
        self.start: int | None = None
        """Of the log, when it was last reported."""
        self.removals: tuple[Removal, ...] = ()
        """The last two that are at least five minutes apart."""
        self.ahead_since: float | None = None
        """Since when the committed offset has been above the end of the log; None while it is not."""
        self._caught_up_at: float | None = None

    def add(self, new: Observation, keep_seconds: float, allowed_lag: int = 0) -> None:
        """Takes the latest offsets; those that are no later than the last are no news. Forgets what is older than
        `keep_seconds`. With a lag of `allowed_lag` nothing waits. A log that ends before what was committed, and whose
        commit went back too, is another one: nothing of the old one is kept. Where the end alone goes back, as at a
        change of leaders, it was cut off."""
        old = self.newest
        if old is not None and new.at <= old.at:
            return
        if old is not None and new.end < old.end:
            if max(new.committed, new.end) < old.committed:
                self._forget()
                old = None
            else:
                self._cut_off(new.end)
        if old is not None and not self._is_worth_keeping(old, new):
            self.at[-1], self.committed[-1], self.end[-1] = new[:3]
        else:
            self.at.append(new.at)
            self.committed.append(new.committed)
            self.end.append(new.end)
        # The newest of those that are too old stays: it is what held then.
        passed = self.first(new.at - keep_seconds)
        if passed > 0:
            del self.at[:passed], self.committed[:passed], self.end[:passed]
        if len(self.at) > _KEPT:
            self._thin()
        self._note(old, new, allowed_lag)
        self._note_the_log(new)
        self.newest = new
        self._look_for_the_end(new, allowed_lag)

    def add_again(self, at: float) -> bool:
        """Takes the newest offsets, and the log start, as seen once more `at`: what `add` would do with them, for a
        tenth of the time. Whether it could: not where they were seen once so far, nor after a gap."""
        newest = self.newest
        if newest is None or len(self.at) < 2 or not newest.at < at <= newest.at + self._gap_seconds():
            return False
        if self.committed[-2] != newest.committed or self.end[-2] != newest.end:
            return False
        self.at[-1] = at
        self.interval_seconds = at - newest.at
        self.newest = Observation(at, newest.committed, newest.end, newest.start)
        if self.waiting_since is None:
            self._caught_up_at = at
        return True

    def _gap_seconds(self) -> float:
        return max(_GAP_SECONDS, _GAP_INTERVALS * self.interval_seconds)

    def complete(self, span_seconds: float) -> float:
        """How much was seen of the span before the newest observation, from 0 to 1."""
        if not self.at:
            return 0.0
        began, ended = max(self.at[0], self.at[-1] - span_seconds), self.at[-1]
        unseen = 0.0 if self.gap is None else max(self.gap[1] - max(self.gap[0], began), 0.0)
        return (ended - began - unseen) / span_seconds

    def _cut_off(self, end: int) -> None:
        for row in reversed(range(len(self.end))):
            if self.end[row] <= end:
                return
            self.end[row] = end

    def first(self, since: float) -> int:
        """The row of the observation that held at `since`, or of the first there is; never that of the newest, unless
        it is the only one."""
        return max(bisect_right(self.at, since, 0, len(self.at) - 1) - 1, 0)

    def _is_worth_keeping(self, old: Observation, new: Observation) -> bool:
        """Whether the newest so far is to be kept behind those that are: not in the middle of a run."""
        if len(self.at) < 2:
            return True
        committed, end = self.committed[-2], self.end[-2]
        return not (committed == old.committed == new.committed and end == old.end == new.end)

    def _thin(self) -> None:
        """Drops the more, the older they are; so an hour fits beside the last seconds."""
        share = 1 / _DETAIL
        while len(self.at) > _THINNED:
            rows = self._worth_keeping(share)
            self.at = array("d", [self.at[row] for row in rows])
            self.committed = array("q", [self.committed[row] for row in rows])
            self.end = array("q", [self.end[row] for row in rows])
            share *= 2

    def _worth_keeping(self, share: float) -> list[int]:
        """The rows without which there would be a gap longer than that share of their age; and those that show what a
        commit has left over, as long as there are others of the same commit."""
        at, committed, newest = self.at, self.committed, self.at[-1]
        kept = [0]
        for row in range(1, len(at) - 1):
            is_commit = committed[kept[-1]] != committed[row] == committed[row + 1]
            if is_commit or at[row + 1] - at[kept[-1]] > share * (newest - at[row]):
                kept.append(row)
        return [*kept, len(at) - 1]

    def _note(self, old: Observation | None, new: Observation, allowed_lag: int) -> None:
        if old is not None:
            interval = new.at - old.at
            if interval > self._gap_seconds():
                self.gap = (old.at, new.at)
                if self.waiting_since is not None:
                    self.waiting_since += interval
            self.interval_seconds = interval
        # Where nothing is committed, lag may be counted from the log start, which retention moves.
        is_commit = self.uncommitted is None or new.committed != new.start
        if old is not None and new.committed != old.committed and is_commit:
            self._learn(new.at - (old.at if self.waiting_since is None else self.waiting_since))
            self.moved_at = new.at
            self.left_over = new.lag
            if new.committed < old.committed:
                before = old.committed if self.rewind is None else max(old.committed, self.rewind.from_offset)
                self.rewind = Rewind(new.at, before, new.committed)
        if self.rewind is not None and new.committed >= self.rewind.from_offset:
            self.rewind = None
        if new.lag <= allowed_lag:
            self.waiting_since = None
        elif self.waiting_since is None or self.moved_at == new.at:
            self.waiting_since = new.at

    def _note_the_log(self, new: Observation) -> None:
        if new.committed <= new.end:
            self.ahead_since = None
        elif self.ahead_since is None:
            self.ahead_since = new.at
        if new.start is None:
            return
        if self.start is not None and new.start < self.start:
            self.removals = ()
        last = self.removals[-1].at if self.removals else -inf
        if self.start is not None and new.start > self.start and new.at - last >= _BETWEEN_REMOVALS_SECONDS:
            self.removals = (*self.removals, Removal(new.at, new.start, new.committed))[-2:]
        self.start = new.start

    def _learn(self, silence_seconds: float) -> None:
        """The second longest of the last: one accident is no cadence. What was silent already when it was first seen
        was silent for longer than that."""
        if self.moved_at is None and self.waiting_since == self.at[0]:
            return
        self._silences.append(silence_seconds)
        del self._silences[:-_SILENCES]
        if len(self._silences) >= _SILENCES_LEARNED:
            self.cadence_seconds = sorted(self._silences)[-2]

    @property
    def caught_up_at(self) -> float | None:
        """The last time at which the log ended at or before what is committed now: all that waits came later. If that
        was before the oldest observation, it is reckoned by the pace at which messages have arrived since. None: not
        known."""
        newest = self.newest
        if newest is None or newest.lag == 0 or self.end[0] <= newest.committed:
            return self._caught_up_at
        arrived, seconds = newest.end - self.end[0], newest.at - self.at[0]
        if arrived == 0 or seconds < _PACE_SECONDS:
            return self._caught_up_at
        reckoned = self.at[0] - (self.end[0] - newest.committed) * seconds / arrived
        return reckoned if self._caught_up_at is None else max(reckoned, self._caught_up_at)

    def _look_for_the_end(self, new: Observation, allowed_lag: int) -> None:
        if new.lag <= allowed_lag:
            self._caught_up_at = new.at
            return
        if self.rewind is not None and self.rewind.at == new.at:
            self._caught_up_at = None
        number = bisect_right(self.end, new.committed, 0, len(self.end) - 1) - 1
        if number >= 0 and (self._caught_up_at is None or self.at[number] > self._caught_up_at):
            self._caught_up_at = self.at[number]
