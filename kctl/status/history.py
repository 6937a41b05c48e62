"""The history of many partitions in a time window, with bounded memory. Pure.

Times are the caller's monotonic seconds. Values are in columns, which are NumPy arrays over all partitions. An unknown
time is NaN, and an unknown offset is `ABSENT`.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kctl.rows.columns import ABSENT, Bools, Ints, Reals, Rows, rearranged
from kctl.status.observations import Observations, whole

_UNKNOWN = np.nan
_PACE_SECONDS = 60.0  # how long arrivals must be observed to estimate their pace
_BETWEEN_REMOVALS_SECONDS = 300.0
"""How often a broker removes old messages (`log.retention.check.interval.ms`)."""
_SILENCES = 8
_SILENCES_LEARNED = 3
_GAP_SECONDS = 10.0
_GAP_INTERVALS = 3.0
"""A gap in the observations is longer than `_GAP_SECONDS` and than this many previous intervals."""


class Uncommitted(IntEnum):
    COMMITTED = 0
    NEVER = 1
    GONE = 2  # the commit was deleted with its group, or has expired


class SeenOffsets(NamedTuple):
    at: Reals
    committed: Ints  # the offsets from which lag is counted
    end: Ints
    start: Ints

    @property
    def lag(self) -> Ints:
        lag: Ints = np.maximum(self.end - self.committed, 0)
        return lag


class _Column(NamedTuple):
    fill: Any
    depth: int  # number of values per partition; 0 for one value without a dimension of its own
    is_rare: bool
    """Whether most partitions never need the column: all share one read-only value until the first differs."""
    is_reset: bool  # whether the column is reset with the observations

    def filled(self, size: int) -> NDArray[Any]:
        shape = (self.depth, size) if self.depth else (size,)
        return np.broadcast_to(self.fill, shape) if self.is_rare else np.full(shape, self.fill)


def _column(fill: object, depth: int = 0, *, is_rare: bool = False, is_reset: bool = True) -> Any:
    return _Column(fill, depth, is_rare, is_reset)


class History:
    """Observations of `size` partitions. Not thread-safe.

    Columns are read-only. If a partition's `rows.count` is 0, it has no observations and its `newest` is undefined.
    """

    uncommitted: NDArray[np.int8] = _column(np.int8(Uncommitted.COMMITTED), is_reset=False)
    """Whether a commit exists. If not, lag counts from a position in `newest.committed`, or from the log start if
    `is_lag_known` is false."""
    is_lag_known: Bools = _column(True, is_reset=False)
    moved_at: Reals = _column(_UNKNOWN)  # when the committed offset was last seen to change
    left_over: Ints = _column(0)
    waiting_since: Reals = _column(_UNKNOWN)
    """Since when messages are pending without a commit; else NaN.

    Time without observations does not count, because a commit may have happened then, or been impossible.
    """
    cadence_seconds: Reals = _column(_UNKNOWN)
    """How long messages usually wait for a commit; NaN with too few observations."""
    interval_seconds: Reals = _column(0.0)  # seconds between the last two observations
    rewind_at: Reals = _column(_UNKNOWN, is_rare=True)
    """The last time the offset went back; NaN once it has recovered."""
    rewind_from: Ints = _column(0, is_rare=True)  # the highest offset before the rewind
    rewind_to: Ints = _column(0, is_rare=True)
    start: Ints = _column(ABSENT)
    removed_at: Reals = _column(_UNKNOWN, depth=2, is_rare=True)
    """The last two removals by retention that are at least five minutes apart, as two columns, the older first."""
    removed_start: Ints = _column(0, depth=2, is_rare=True)
    removed_committed: Ints = _column(0, depth=2, is_rare=True)
    ahead_since: Reals = _column(_UNKNOWN, is_rare=True)
    """Since when the committed offset is above the log's end; else NaN."""
    lagged_at: Reals = _column(_UNKNOWN)
    _caught_up_at: Reals = _column(_UNKNOWN)
    _silences: Reals = _column(-np.inf, depth=_SILENCES)
    _silence_count: NDArray[np.int32] = _column(np.int32(0))

    def __init__(self, size: int) -> None:
        self.newest = SeenOffsets(np.full(size, _UNKNOWN), *(np.zeros(size, np.int64) for _ in range(3)))
        self.rows = Observations(size)
        for name, declared in _COLUMNS.items():
            setattr(self, name, declared.filled(size))

    def choose(self, rows: Rows) -> None:
        self.newest = SeenOffsets._make(rearranged(column, rows, 0) for column in self.newest)
        self.newest.at[rows < 0] = _UNKNOWN
        for name, declared in _COLUMNS.items():
            column = getattr(self, name)
            is_kept = column.flags.writeable
            setattr(self, name, rearranged(column, rows, declared.fill) if is_kept else declared.filled(len(rows)))
        self.rows.choose(rows)

    def begin(self, rows: Rows, uncommitted: NDArray[np.int8], is_lag_known: Bools, committed_at: Reals) -> None:
        """Restarts the observations of partitions. `committed_at` is when their first commit was seen, or NaN."""
        self._forget(rows)
        self.uncommitted[rows], self.is_lag_known[rows] = uncommitted, is_lag_known
        self.moved_at[rows] = committed_at

    def add(self, new: SeenOffsets, is_known: Bools, keep_seconds: Reals, allowed_lag: Ints) -> None:
        """Adds `new` where known and later than the newest observation. Forgets observations older than `keep_seconds`.

        A lag up to `allowed_lag` does not count as pending. If the new log end and the new commit are both below the
        old commit, treats the log as recreated: drops old observations. Treats any other fall of the log end, such as
        after a change of leader, as a truncation: lowers observed ends to the new end.
        """
        rows = np.flatnonzero(is_known & ~(new.at <= self.newest.at))
        every = whole(rows, len(is_known))
        if len(rows) < len(is_known):
            new, keep_seconds, allowed_lag = _part(new, rows), keep_seconds[rows], allowed_lag[rows]
        old = _part(self.newest, every)
        is_seen = ~np.isnan(old.at)
        is_shorter = is_seen & (new.end < old.end)
        if is_shorter.any():
            is_seen = is_seen & ~self._forget_others(rows, old, new, is_shorter)
        is_end_same = is_seen & (new.end == old.end)
        is_same = is_end_same & (new.committed == old.committed)
        self.rows.add(rows, new.at, new.committed, new.end, is_same, is_end_same)
        is_cut = is_shorter & is_seen
        if is_cut.any():
            self.rows.cut_off(rows[is_cut], new.end[is_cut])
        self.rows.forget_before(rows, new.at - keep_seconds)
        lag = new.lag
        is_waiting = lag > allowed_lag
        self._note_the_pace(rows, old, new, is_seen)
        self._note_commits(rows, old, new, is_seen, lag)
        self._note_waiting(every, new, is_waiting)
        self._note_the_log(rows, every, new)
        for column, values in zip(self.newest, new, strict=True):
            column[every] = values
        self.lagged_at[every] = np.where(lag > 0, new.at, self.lagged_at[every])
        self._look_for_the_end(rows, every, new, is_waiting)

    def excuse(self, is_excused: Bools) -> None:
        """Restarts the waiting time (`waiting_since`) of excused partitions, such as paused ones, at `newest.at`."""
        is_waiting = is_excused & ~np.isnan(self.waiting_since)
        self.waiting_since[is_waiting] = self.newest.at[is_waiting]

    def _forget_others(self, rows: Rows, old: SeenOffsets, new: SeenOffsets, is_shorter: Bools) -> Bools:
        is_other: Bools = is_shorter & (np.maximum(new.committed, new.end) < old.committed)
        if is_other.any():
            self._forget(rows[is_other])
        return is_other

    def caught_up_at(self) -> Reals:
        """Returns when the log end was last at or below the committed offset, or NaN if unknown.

        All pending messages have arrived since then. A time before the oldest observation is estimated from the pace of
        arrivals.
        """
        first_at, first_end = self.rows.at[0], self.rows.end[0]
        rows = np.flatnonzero((self.newest.lag > 0) & (first_end > self.newest.committed) & (self.rows.count > 0))
        found = self._caught_up_at.copy()
        arrived, seconds = self.newest.end[rows] - first_end[rows], self.newest.at[rows] - first_at[rows]
        is_pace = (arrived != 0) & (seconds >= _PACE_SECONDS)
        rows, arrived, seconds = rows[is_pace], arrived[is_pace], seconds[is_pace]
        reckoned = first_at[rows] - (first_end[rows] - self.newest.committed[rows]) * seconds / arrived
        found[rows] = np.fmax(reckoned, found[rows])
        return found

    def _forget(self, rows: Rows) -> None:
        self.newest.at[rows] = _UNKNOWN
        for name, declared in _COLUMNS.items():
            column = getattr(self, name)
            if declared.is_reset and column.flags.writeable:
                column[..., rows] = declared.fill
        self.rows.forget(rows)

    def _hold(self, *names: str) -> None:
        for name in names:
            column = getattr(self, name)
            if not column.flags.writeable:
                setattr(self, name, column.copy())

    def _note_the_pace(self, rows: Rows, old: SeenOffsets, new: SeenOffsets, is_seen: Bools) -> None:
        every = whole(rows, len(self.moved_at))
        interval, before = new.at - old.at, self.interval_seconds[every]
        is_gap = is_seen & (interval > np.maximum(_GAP_SECONDS, _GAP_INTERVALS * before))
        self.waiting_since[rows[is_gap]] += interval[is_gap]
        self.interval_seconds[every] = np.where(is_seen, interval, before)

    def _note_commits(self, rows: Rows, old: SeenOffsets, new: SeenOffsets, is_seen: Bools, lag: Ints) -> None:
        # Without a commit, lag may be counted from the log start, which retention moves.
        every = whole(rows, len(self.moved_at))
        is_commit = (self.uncommitted[every] == Uncommitted.COMMITTED) | (new.committed != new.start)
        [chosen] = np.nonzero(is_seen & (new.committed != old.committed) & is_commit)
        moved, at, committed = rows[chosen], new.at[chosen], new.committed[chosen]
        waiting = self.waiting_since[moved]
        # A silence that had already begun at the first observation was longer than observed.
        is_known = ~(np.isnan(self.moved_at[moved]) & (waiting == self.rows.at[0, moved]))
        silence = at - np.where(np.isnan(waiting), old.at[chosen], waiting)
        self._learn(moved[is_known], silence[is_known])
        self.moved_at[moved], self.left_over[moved] = at, lag[chosen]
        is_back = committed < old.committed[chosen]
        if is_back.any():
            self._hold("rewind_at", "rewind_from", "rewind_to")
            back, before = moved[is_back], old.committed[chosen][is_back]
            highest = np.where(np.isnan(self.rewind_at[back]), before, np.maximum(before, self.rewind_from[back]))
            self.rewind_at[back], self.rewind_from[back] = at[is_back], highest
            self.rewind_to[back] = committed[is_back]
        if self.rewind_at.flags.writeable:
            is_over = new.committed >= self.rewind_from[every]
            self.rewind_at[every] = np.where(is_over, _UNKNOWN, self.rewind_at[every])

    def _learn(self, rows: Rows, silence_seconds: Reals) -> None:
        if not len(rows):
            return
        count = self._silence_count[rows]
        self._silences[count % _SILENCES, rows] = silence_seconds
        self._silence_count[rows] = count + 1
        rows = rows[count + 1 >= _SILENCES_LEARNED]
        every = whole(rows, len(self.moved_at))
        longest, second = np.full(len(rows), -np.inf), np.full(len(rows), -np.inf)
        for column in self._silences:
            silence = column[every]
            second = np.maximum(second, np.minimum(longest, silence))
            longest = np.maximum(longest, silence)
        self.cadence_seconds[every] = second  # the longest may be an accident

    def _note_waiting(self, every: Rows | slice, new: SeenOffsets, is_waiting: Bools) -> None:
        since = self.waiting_since[every]
        is_anew = np.isnan(since) | (self.moved_at[every] == new.at)
        self.waiting_since[every] = np.where(is_waiting, np.where(is_anew, new.at, since), _UNKNOWN)

    def _note_the_log(self, rows: Rows, every: Rows | slice, new: SeenOffsets) -> None:
        is_ahead = new.committed > new.end
        if is_ahead.any():
            self._hold("ahead_since")
        if self.ahead_since.flags.writeable:
            since = self.ahead_since[every]
            self.ahead_since[every] = np.where(is_ahead, np.where(np.isnan(since), new.at, since), _UNKNOWN)
        start = self.start[every]
        is_changed = new.start != start
        if not is_changed.any():
            return
        is_both = is_changed & (new.start != ABSENT) & (start != ABSENT)
        if self.removed_at.flags.writeable:
            self.removed_at[:, rows[is_both & (new.start < start)]] = _UNKNOWN
        long_ago = ~(new.at - self.removed_at[1, rows] < _BETWEEN_REMOVALS_SECONDS)
        [chosen] = np.nonzero(is_both & (new.start > start) & long_ago)
        if len(chosen):
            self._note_removal(rows[chosen], _part(new, chosen))
        self.start[every] = np.where(new.start == ABSENT, start, new.start)

    def _note_removal(self, rows: Rows, new: SeenOffsets) -> None:
        self._hold("removed_at", "removed_start", "removed_committed")
        for column, values in (
            (self.removed_at, new.at),
            (self.removed_start, new.start),
            (self.removed_committed, new.committed),
        ):
            column[0, rows] = column[1, rows]
            column[1, rows] = values

    def _look_for_the_end(self, rows: Rows, every: Rows | slice, new: SeenOffsets, is_waiting: Bools) -> None:
        caught_up_at = np.where(self.rewind_at[every] == new.at, _UNKNOWN, self._caught_up_at[every])
        self._caught_up_at[every] = np.where(is_waiting, caught_up_at, new.at)
        [chosen] = np.nonzero(is_waiting & (self.rows.end[0, every] <= new.committed))
        these, committed = rows[chosen], new.committed[chosen]
        if len(these):
            self._caught_up_at[these] = np.fmax(self._caught_up_at[these], self.rows.ended_at(these, committed))


_COLUMNS = {name: each for name, each in vars(History).items() if isinstance(each, _Column)}


def _part(offsets: SeenOffsets, rows: Rows | slice) -> SeenOffsets:
    return SeenOffsets._make(column[rows] for column in offsets)
