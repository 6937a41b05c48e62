"""Which messages arrived, and which batches ended, in the last minutes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kctl.advice.capacity import moments
from kctl.rows.columns import Partition, Reals

_STEPS = 30
_SETTLING = 1 / 15
"""After an interruption, batches do not count for this part of the window."""
_COLD_BATCHES = 2
"""After an interruption, so many batches of each process do not count, because Spark is slow in them."""


class Work(NamedTuple):
    """Counters of a process since its start."""

    batches: int
    rows: int
    seconds: float


@dataclass(slots=True)
class Arrivals:
    """The messages per second that arrive in each partition."""

    window_seconds: float
    _seen: deque[tuple[float, Reals]] = field(default_factory=deque)
    _keys: tuple[Partition, ...] = ()

    def per_second(self, at: float, keys: tuple[Partition, ...], end: Reals) -> tuple[Reals, float]:
        """Adds end offsets (NaN: unknown); returns the mean rates, and the seconds that they cover."""
        if keys != self._keys:
            self._keys = keys
            self._seen.clear()
        while len(self._seen) > 1 and self._seen[1][0] <= at - self.window_seconds:
            self._seen.popleft()
        if not self._seen or at - self._seen[-1][0] >= self.window_seconds / _STEPS:
            self._seen.append((at, end))
        since, first = self._seen[0]
        return np.maximum(end - first, 0.0) / max(at - since, 1e-9), at - since


@dataclass(slots=True)
class BatchWindow:
    """The batches of all processes of one kind, by the number of processes at that time."""

    window_seconds: float
    _buckets: deque[tuple[float, int, Reals]] = field(default_factory=deque)
    _before: Mapping[str, Work] = field(default_factory=dict)
    _count: int = 0
    _warm: dict[str, int] = field(default_factory=dict)
    """From how many batches on those of a process count."""
    _settled_at: float = 0.0

    def add(self, at: float, count: int, work: Mapping[str, Work], *, is_interrupted: bool = False) -> None:
        if is_interrupted or count != self._count:
            self._settled_at, self._count, self._warm = at + self.window_seconds * _SETTLING, count, {}
        done = np.zeros(6)
        for name, now in work.items():
            before = self._before.get(name, now)
            batches, rows = now.batches - before.batches, now.rows - before.rows
            if name not in self._warm or batches < 0:  # it has restarted
                self._warm[name] = now.batches + _COLD_BATCHES
            elif before.batches >= self._warm[name] and batches and rows > 0 and now.seconds > before.seconds:
                done += moments(batches, rows, now.seconds - before.seconds)
        self._before = dict(work)
        while self._buckets and self._buckets[0][0] <= at - self.window_seconds:
            self._buckets.popleft()
        if at < self._settled_at or not done.any():
            return
        if self._buckets and self._buckets[-1][1] == count and at - self._buckets[-1][0] < self.window_seconds / _STEPS:
            at, _, sums = self._buckets.pop()
            done += sums
        self._buckets.append((at, count, done))

    def moments(self, count: int | None = None) -> Reals:
        """Returns the sums over the window; with `count`, only over the time with so many processes."""
        return sum((sums for _, with_count, sums in self._buckets if count in (None, with_count)), np.zeros(6))
