"""Counts the messages that arrived, and the batches that ended, in the last minutes."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData

from kctl.rows.columns import Partition, Reals, Rows

_LEAST_BATCHES = 5
_FULL = 0.8
"""If the average batch has at least this share of the rows of a full one, its rate counts as that of a full batch."""
_MOST_ERROR = 0.2  # the relative standard error above which the time of a full batch counts as unknown


def moments(batches: int, rows: int, seconds: float) -> Reals:
    """Returns sums over batches: number, rows, seconds, rows², rows * seconds, seconds². Treats the batches as
    equally large, because only their totals are known."""
    return np.array([batches, rows, seconds, rows**2 / batches, rows * seconds / batches, seconds**2 / batches])


class Capacity(NamedTuple):
    per_second: float | None
    """The messages that one process can do per second, in full batches; None: unknown."""
    reason: str = ""  # why the capacity is unknown


def capacity(seen: Reals, full_batch: int) -> Capacity:
    """Estimates a process's messages per second in full batches, from the `moments` of past batches."""
    n = float(seen[0])
    if n < _LEAST_BATCHES or not seen[2]:
        return Capacity(None, f"fewer than {_LEAST_BATCHES} batches with messages have ended")
    _, rows, seconds, rows_rows, rows_seconds, seconds_seconds = (seen / n).tolist()
    if rows >= _FULL * full_batch:
        return Capacity(rows / seconds)
    spread = max(rows_rows - rows**2, 0.0)
    together = rows_seconds - rows * seconds
    per_row = max(together / spread, 0.0) if spread else 0.0
    if per_row * rows > seconds:  # the fixed time of a batch cannot be negative
        per_row = seconds / rows
    full = seconds + per_row * (full_batch - rows)
    left = max(seconds_seconds - seconds**2 - 2 * per_row * together + per_row**2 * spread, 0.0) * n / (n - 2)
    error = sqrt(left * (1 / n + ((full_batch - rows) ** 2 / (n * spread) if spread else 0.0)))
    if not spread or error > _MOST_ERROR * full:
        return Capacity(None, f"all batches had about {rows:,.0f} rows, so the time of a full batch is unknown")
    return Capacity(full_batch / full)


_STEPS = 30
_SETTLING = 1 / 15  # after an interruption, batches do not count for this part of the window
_COLD_BATCHES = 2
"""After an interruption, this many batches of each process do not count, because Spark is slow in them."""


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
        """Records end offsets (NaN if unknown). Returns each partition's mean rate and the seconds that it covers."""
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
    """The batches of all processes of one kind, grouped by how many processes ran when each batch ended."""

    window_seconds: float
    _buckets: deque[tuple[float, int, Reals]] = field(default_factory=deque)
    _before: Mapping[str, Work] = field(default_factory=dict)
    _count: int = 0
    _warm: dict[str, int] = field(default_factory=dict)
    """Process -> its batches count from this number on."""
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
        """Returns the module's `moments` of all batches, or of those that ended while `count` processes ran."""
        return sum((sums for _, with_count, sums in self._buckets if count in (None, with_count)), np.zeros(6))


_STATELESS: dict[str, Any] = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
_MOST_ASKED = 200
"""The most partitions for which the assignor is called, which takes 10 ms; more count as assigned in turn."""


class Shares:
    """Predicts the owner of each partition for a number of workers. Caches the assignor's answers."""

    def __init__(self, assignor: str) -> None:
        self._assignor = assignor
        self._keys: tuple[Partition, ...] = ()
        self._owners: tuple[str | None, ...] = ()
        self._kept: dict[int, Rows] = {}

    def use(self, keys: tuple[Partition, ...], owners: tuple[str | None, ...]) -> None:
        if (keys, owners) != (self._keys, self._owners):
            self._keys, self._owners, self._kept = keys, owners, {}

    def largest(self, count: int, load: Reals) -> float:
        """Returns the load of the most loaded of `count` workers."""
        return float(np.bincount(self.of_each(count), load).max(initial=0.0))

    def of_each(self, count: int) -> Rows:
        """Returns, for each partition, the index of its worker if `count` workers ran."""
        if count not in self._kept:
            self._kept[count] = self._assigned(count)
        return self._kept[count]

    def _assigned(self, count: int) -> Rows:
        names = sorted({each for each in self._owners if each}, key=lambda name: (len(name), name))
        if len(names) == count and None not in self._owners:
            return np.array([names.index(each) for each in self._owners if each], np.intp)
        members = [*names, *(f"new-{number:09}" for number in range(count))][:count]
        if len(self._keys) > _MOST_ASKED:
            return np.arange(len(self._keys)) % count
        owner_of = self._asked(members)
        return np.array([owner_of[key] for key in self._keys], np.intp)

    def _asked(self, members: Sequence[str]) -> dict[Partition, int]:
        topics: dict[str, set[int]] = defaultdict(set)
        owned: dict[str | None, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic, partition), owner in zip(self._keys, self._owners, strict=True):
            topics[topic].add(partition)
            owned[owner][topic].append(partition)
        cluster: Any = SimpleNamespace(topics=lambda: set(topics), partitions_for_topic=topics.get)
        joined: list[Any] = [
            SimpleNamespace(
                member_id=name,
                group_instance_id=None,
                metadata=SimpleNamespace(
                    topics=sorted(topics), user_data=StickyAssignorUserData(list(owned[name].items()), 1)
                ),
            )
            for name in members
        ]
        given = _STATELESS.get(self._assignor, StickyPartitionAssignor)().assign(cluster, joined)
        return {
            (topic, partition): number
            for number, name in enumerate(members)
            for topic, partitions in given[name].assigned_partitions
            for partition in partitions
        }
