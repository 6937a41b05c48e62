"""Which messages arrived, and which batches ended, in the last minutes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kctl.advice.capacity import Moments, together
from kctl.rows.columns import Partition, Reals

_STEPS = 30
_SETTLING = 1 / 15
"""After a change of the number of processes, batches do not count for this part of the window: they include starts."""


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
    """The batches of all processes of one kind, by how many processes there were."""

    window_seconds: float
    _buckets: deque[tuple[float, int, Moments]] = field(default_factory=deque)
    _before: Mapping[str, Work] = field(default_factory=dict)
    _count: int = 0
    _settled_at: float = 0.0

    def add(self, at: float, count: int, work: Mapping[str, Work]) -> None:
        """Adds the batches since the last call. A process that has restarted counts from its restart."""
        if count != self._count:
            self._settled_at = at + self.window_seconds * _SETTLING
            self._count = count
        found = []
        for name, now in work.items():
            before = self._before.get(name, now)
            batches, rows = now.batches - before.batches, now.rows - before.rows
            if batches > 0 and rows > 0 and now.seconds > before.seconds:
                found.append(Moments.of(batches, rows, now.seconds - before.seconds))
        self._before = dict(work)
        while self._buckets and self._buckets[0][0] <= at - self.window_seconds:
            self._buckets.popleft()
        if at < self._settled_at or not found:
            return
        done = together(found)
        if self._buckets and self._buckets[-1][1] == count and at - self._buckets[-1][0] < self.window_seconds / _STEPS:
            since, _, sums = self._buckets.pop()
            self._buckets.append((since, count, together([sums, done])))
        else:
            self._buckets.append((at, count, done))

    def moments(self, count: int | None = None) -> Moments:
        """Returns the sums over the window; with `count`, only over the time with so many processes."""
        found = [sums for _, with_count, sums in self._buckets if count in (None, with_count)]
        return together(found)
