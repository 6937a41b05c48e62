"""The lag of the last 15 minutes in 60 steps, small enough to keep for every partition."""

from __future__ import annotations

from array import array

STEP_SECONDS = 15.0
STEPS = 60
_UNKNOWN = -1


class Sparkline:
    """The greatest lag of each step, oldest first; None for a step of which nothing is known. One thread
    adds, any may read."""

    __slots__ = ("_lags", "_step")

    def __init__(self) -> None:
        self._lags = array("q")
        self._step = 0

    def add(self, lag: int | None, now: float) -> None:
        """Takes the lag at `now`, seconds of a monotonic clock."""
        step = int(now // STEP_SECONDS)
        missed = step - self._step if self._lags else 1
        if missed > 0:
            self._lags.extend([_UNKNOWN] * min(missed, STEPS))
            del self._lags[:-STEPS]
        self._step = step
        if lag is not None:
            self._lags[-1] = max(self._lags[-1], lag)

    def lags(self) -> list[int | None]:
        return [None if lag == _UNKNOWN else lag for lag in self._lags.tolist()]
