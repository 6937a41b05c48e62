"""The group's committed offsets as this worker knows them, and when a rejected commit is retried."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka import TopicPartition

QUIET_SECONDS = 1.0
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0)
"""Back-off of a partition whose commit the broker rejects; the others are committed meanwhile."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class _Refused:
    times: int
    retry_at: float


class Commits:
    """`known` may be read from any thread; it is replaced, never mutated."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, int] = {}
        self._changed_at = time.monotonic()
        self._refused: dict[TopicPartition, _Refused] = {}

    def found(self, offsets: Offsets) -> None:
        self.known = dict(offsets)

    def due(self, positions: Offsets) -> dict[TopicPartition, int]:
        return {tp: position for tp, position in positions.items() if self.known.get(tp) != position}

    @property
    def is_quiet(self) -> bool:
        return time.monotonic() - self._changed_at >= QUIET_SECONDS

    def answered(self, offsets: Offsets, refused: Collection[TopicPartition], now: float) -> None:
        """All `offsets` are committed except `refused` partitions. Main thread only."""
        self.done({tp: offset for tp, offset in offsets.items() if tp not in refused})
        still = {tp: before for tp, before in self._refused.items() if tp not in offsets}
        for tp in refused:
            times = self._refused[tp].times + 1 if tp in self._refused else 1
            still[tp] = _Refused(times, now + RETRY_SECONDS[min(times, len(RETRY_SECONDS)) - 1])
        self._refused = still

    def waiting(self, assigned: Collection[TopicPartition], now: float) -> frozenset[TopicPartition]:
        """Rejected partitions in back-off. Forgets those that are no longer assigned."""
        self._refused = {tp: refused for tp, refused in self._refused.items() if tp in assigned}
        return frozenset(tp for tp, refused in self._refused.items() if now < refused.retry_at)

    @property
    def is_refused(self) -> bool:
        return bool(self._refused)

    def done(self, offsets: Offsets) -> None:
        """Records committed offsets. Never blocks: kafka-python's I/O thread calls it too."""
        self.known = {**self.known, **offsets}
        self._changed_at = time.monotonic()
