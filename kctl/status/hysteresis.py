"""Hysteresis of statuses: worse is reported at once, better only when it lasts, so that alerts do not flap."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from kctl.status.judgements import NUMBERS
from kctl.status.observations import Bools, Rows
from kctl.status.words import Status

_TROUBLE = NUMBERS[Status.WARN]
_NONE = -1


class Held(IntEnum):
    """Why trouble is reported although the rules have found something better."""

    NO = 0
    NOT_YET_OVER = 1
    NOT_SEEN_TO_BE_OVER = 2


class Hysteresis:
    """The reported statuses of many partitions, and since when the rules have seen better ones."""

    def __init__(self, size: int) -> None:
        self.status = np.full(size, _NONE, np.int8)
        self._better_since = np.full(size, np.nan)

    def choose(self, rows: Rows) -> None:
        """Moves partitions: from now on they are `rows` of those so far, in this order; -1 is a new one."""
        is_old, chosen = rows >= 0, Hysteresis(len(rows))
        chosen.status[is_old] = self.status[rows[is_old]]
        chosen._better_since[is_old] = self._better_since[rows[is_old]]
        self.status, self._better_since = chosen.status, chosen._better_since

    def settle(self, judged: NDArray[np.int8], now: float, hold_seconds: float, is_blind: Bools) -> NDArray[np.int8]:
        """Returns the statuses to report: from trouble (`warn` and worse) to anything better it takes `hold_seconds`.
        Rules that no longer know (`unknown`) are believed at once, unless `is_blind`: trouble is not over because
        nothing is seen any more. Where the status is not what was judged it is `Held` why."""
        held = np.zeros(len(judged), np.int8)
        better = np.flatnonzero((judged < self.status) & (self.status >= _TROUBLE))
        blind = is_blind[better]
        held[better[blind]] = Held.NOT_SEEN_TO_BE_OVER
        settling = better[~blind & (judged[better] != NUMBERS[Status.UNKNOWN])]
        since = np.where(np.isnan(self._better_since[settling]), now, self._better_since[settling])
        is_held = now - since < hold_seconds
        held[settling[is_held]] = Held.NOT_YET_OVER
        self._better_since.fill(np.nan)
        self._better_since[settling[is_held]] = since[is_held]
        self.status = np.where(held == Held.NO, judged, self.status)
        return held
