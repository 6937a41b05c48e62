"""Values of many series over time, in rings of steps with least and most. Pure; unknown is NaN."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from kctl.rows.columns import Reals


class Ring:
    def __init__(self, step_seconds: float, slots: int) -> None:
        self.step_seconds, self.slots = step_seconds, slots
        self._values = np.full((slots, 2, 0, 0), np.nan, np.float32)
        """By slot, least and most, metric, subject, so that one snapshot changes adjacent values."""
        self._last: int | None = None

    def choose(self, places: NDArray[np.intp], metrics: int) -> None:
        """Replaces the subjects. `places` has the previous index of each; -1 is a new subject."""
        chosen = np.full((self.slots, 2, metrics, len(places)), np.nan, np.float32)
        [is_old] = np.nonzero(places >= 0)
        if len(is_old):
            chosen[..., is_old] = self._values[..., places[is_old]]
        self._values = chosen

    def add(self, at: float, values: Reals) -> None:
        """`values` has a row per metric. If the clock was set back, drops steps after `at`."""
        step = int(at // self.step_seconds)
        if self._last is not None and step != self._last:
            low, high = sorted((step, self._last))
            self._values[np.arange(low + 1, min(high, low + self.slots) + 1) % self.slots] = np.nan
        self._last = step
        least, most = self._values[step % self.slots]
        np.fmin(least, values, out=least)
        np.fmax(most, values, out=most)

    def reaches(self, since: float) -> bool:
        return self._last is None or since // self.step_seconds > self._last - self.slots

    def window(self, place: int, since: float, until: float) -> tuple[int, Reals, Reals]:
        """The first step, and least and most of each metric from it on."""
        last = self._last or 0
        first = max(int(since // self.step_seconds), last - self.slots + 1)
        steps = np.arange(first, max(min(int(until // self.step_seconds), last), first - 1) + 1)
        values = self._values[steps % self.slots, :, :, place].astype(np.float64)
        return first, values[:, 0].T, values[:, 1].T

    def last_most(self, places: NDArray[np.intp], ratio: int, count: int) -> Reals:
        """The greatest values of the first metric in the last `count` groups of `ratio` steps, oldest first: one row
        per group."""
        last = self._last or 0
        steps = np.arange((last // ratio - count + 1) * ratio, (last // ratio + 1) * ratio)
        most = self._values[(steps % self.slots)[:, None], 1, 0, places].astype(np.float64)
        most[(steps > last) | (steps <= last - self.slots)] = np.nan
        grouped: Reals = np.fmax.reduce(most.reshape(count, ratio, len(places)), axis=1)
        return grouped


class StepRates:
    """Rates of counters between the first snapshots of two steps; over shorter times they would jump with each
    commit."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._step: int | None = None
        self._places: dict[Hashable, int] = {}
        self._counters: Reals = np.zeros((0, 0))
        self._at = 0.0

    def add(self, keys: Sequence[Hashable], counters: Reals, now: float, now_unix: float) -> Reals:
        """NaN except in the first snapshot of a step, and for a counter that fell because its process restarted. `now`
        is monotonic."""
        step = int(now_unix // self._step_seconds)
        rates = np.full(counters.shape, np.nan)
        if step == self._step:
            return rates
        if len(self._counters) and len(keys):
            places = np.array([self._places.get(key, -1) for key in keys], np.intp)
            [is_old] = np.nonzero(places >= 0)
            grown = counters[:, is_old] - self._counters[:, places[is_old]]
            rates[:, is_old] = np.where(grown >= 0, grown, np.nan) / max(now - self._at, 1e-3)
        self._step, self._at, self._counters = step, now, counters
        self._places = {key: place for place, key in enumerate(keys)}
        return rates
