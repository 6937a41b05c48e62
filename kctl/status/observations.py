"""Observed offsets of many partitions over time. Each partition has a window of 16 rows. Pure.

Rows are stored in NumPy arrays: with an object per row, the garbage collector would repeatedly scan millions of
objects.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kctl.rows.columns import Bools, Ints, Reals, Rows, rearranged

WINDOW = 16  # maximum rows of a partition
_SHORT = int(np.iinfo(np.int32).max)
_EVEN_SECONDS = 10.0
"""Rows up to this age are about equally far apart; found by `benchmarks.status_rules`."""

Numbers = NDArray[np.int8]  # row numbers, one for each partition


class Observations:
    """The observations of `size` partitions, oldest first. From row to row, times and log ends never fall.

    If a window is full, `add` drops a row, preferably an old one that is close to its neighbours. So a window can cover
    the last seconds closely and still reach back an hour. Columns are read-only. A partition uses the first `count` of
    `WINDOW` rows. The parameter `rows` of methods has indices of partitions.
    """

    at: Reals
    committed: NDArray[np.signedinteger[Any]]
    """32 bits wide, like `end`, while all offsets are small enough."""
    end: NDArray[np.signedinteger[Any]]
    count: Numbers
    end_since: Reals
    _is_run: Bools  # whether the last two rows have the same offsets

    def __init__(self, size: int) -> None:
        self.at, self.end_since = np.zeros((WINDOW, size)), np.zeros(size)
        self.committed, self.end = (np.zeros((WINDOW, size), np.int32) for _ in range(2))
        self.count, self._is_run = np.zeros(size, np.int8), np.zeros(size, np.bool_)

    def choose(self, rows: Rows) -> None:
        for name, column in vars(self).items():
            setattr(self, name, rearranged(column, rows, 0))

    def forget(self, rows: Rows) -> None:
        self.count[rows], self._is_run[rows] = 0, False

    def cut_off(self, rows: Rows, end: Ints) -> None:
        self.end[:, rows] = np.minimum(self.end[:, rows], end)

    def add(self, rows: Rows, at: Reals, committed: Ints, end: Ints, is_same: Bools, is_end_same: Bools) -> None:
        """Adds a row, observed at `at` (seconds), to each partition. `is_same`: whether the row before it has the
        same offsets. `is_end_same`: the same `end`. Of successive equal rows, keeps only the first and last."""
        if self.end.itemsize < end.itemsize and max(_highest(committed), _highest(end)) > _SHORT:
            self.committed, self.end = self.committed.astype(np.int64), self.end.astype(np.int64)
        every = whole(rows, len(self.count))
        is_run = is_same & self._is_run[every]
        self._is_run[every] = is_same & (self.count[every] > 0)
        full = rows[~is_run & (self.count[every] == WINDOW)]
        if len(full):
            self._drop(full, self._least_missed()[full])
        place = self.count[every] - is_run
        for column, values in ((self.at, at), (self.committed, committed), (self.end, end)):
            column[place, rows] = values
        self.count[every] = place + 1
        self.end_since[every] = np.where(is_end_same, self.end_since[every], at)

    def forget_before(self, rows: Rows, since: Reals) -> None:
        """Drops the rows that are older than row `held(rows, since)`. That row's values were valid at `since`."""
        while True:
            every = whole(rows, len(self.count))
            is_passed = (self.count[every] > 2) & (self.at[1, every] <= since)
            if not is_passed.any():
                return
            rows, since = rows[is_passed], since[is_passed]
            self._drop(rows, np.zeros(len(rows), np.int8))

    def held(self, rows: Rows, since: Reals) -> Numbers:
        """Returns the index of the last row at or before `since`, or else 0. Never chooses the newest row."""
        return np.maximum(self.below(self.at, rows, since) - 1, 0)

    def ended_at(self, rows: Rows, end: Ints) -> Reals:
        """Interpolates when each log ended at offset `end`, which must be between the first and newest end."""
        row = self.below(self.end, rows, end) - 1
        (at, first), (next_at, last) = ((self.at[each, rows], self.end[each, rows]) for each in (row, row + 1))
        return at + (next_at - at) * (end - first) / (last - first)

    def below(self, column: NDArray[Any], rows: Rows, values: NDArray[Any]) -> Numbers:
        """Counts each partition's rows where `column` is at most the value in `values`. Never counts the newest row."""
        every, found = whole(rows, len(self.count)), np.zeros(len(rows), np.int8)
        last = self.count[every] - 1
        for number in range(int(last.max(initial=0))):
            found += (column[number, every] <= values) & (last > number)
        return found

    def _drop(self, rows: Rows, numbers: Numbers) -> None:
        dropped = np.full(len(self.count), WINDOW, np.int8)
        dropped[rows] = numbers
        for number in range(int(numbers.min()), WINDOW - 1):
            is_moving = dropped <= number
            for column in (self.at, self.committed, self.end):
                np.copyto(column[number], column[number + 1], where=is_moving)
        self.count[rows] -= 1

    def _least_missed(self) -> Numbers:
        at, committed = self.at, self.committed
        least, found = np.full(at.shape[1], np.inf), np.ones(at.shape[1], np.int8)
        is_commit = committed[1] != committed[0]
        for number in range(1, WINDOW - 1):
            is_next_commit = committed[number + 1] != committed[number]
            with np.errstate(divide="ignore", invalid="ignore"):  # unused rows have arbitrary values
                gap = (at[number + 1] - at[number - 1]) / (at[-1] - at[number] + _EVEN_SECONDS)
            # The first row after a commit shows the remaining lag, and stays while a later row has the same commit.
            is_less = (gap < least) & (is_next_commit | ~is_commit)
            np.copyto(found, np.int8(number), where=is_less)
            np.copyto(least, gap, where=is_less)
            is_commit = is_next_commit
        return found


def _highest(column: Ints) -> int:
    return int(column.max(initial=0))


def whole(rows: Rows, size: int) -> Rows | slice:
    """Returns `rows`, or a slice if `rows` has all `size` indices. Indexing with a slice does not copy."""
    return slice(None) if len(rows) == size else rows
