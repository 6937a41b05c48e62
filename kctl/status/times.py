"""Times of many partitions as numbers of two bytes: all times of one collection are mostly one and the same. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Bools = NDArray[np.bool_]

_MOST = 1 << 16


class TimeCodes:
    """Different times, each with its number; a later one has a higher number. 0 is the number of none.

    Where there are too many, or a new one is not later than all others, a time is its own number from `widen` on.
    """

    kind: type[np.uint16 | np.float64] = np.uint16
    """The type of a number."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._values = np.array([-np.inf])

    def __len__(self) -> int:
        return len(self._values)

    def add(self, at: Reals) -> bool:
        """Gives each time a number; returns whether each has one now."""
        if self.kind is np.float64 or not len(at):
            return True
        new = at[:1] if at.min() == at.max() else np.unique(at)
        new = new[self._values[np.searchsorted(self._values, new, side="right") - 1] != new]
        if not len(new):
            return True
        if not new[0] > self._values[-1] or len(self._values) + len(new) > self._most:
            return False
        self._values = np.concatenate((self._values, new))
        return True

    def at_or_before(self, at: Reals) -> NDArray[Any]:
        """Returns the number of the last time that is not after each of these."""
        if self.kind is np.float64:
            return at
        if len(at) and at.min() == at.max():
            return np.full(len(at), np.searchsorted(self._values, at[0], side="right") - 1, self.kind)
        found = np.searchsorted(self._values, at, side="right") - 1
        return np.where(np.isnan(at), 0, found).astype(self.kind)

    def of(self, numbers: NDArray[Any]) -> Reals:
        return numbers if self.kind is np.float64 else self._values.take(numbers)

    def keep(self, is_used: Bools) -> NDArray[np.uint16]:
        """Keeps only the times in use, with new numbers; returns these by the old ones."""
        self._values = self._values[is_used]
        return (np.cumsum(is_used) - 1).astype(np.uint16)

    def widen(self) -> None:
        self.kind, self._values = np.float64, self._values[:1]
