"""Decides the reading order of partitions whose query failed, so that a bad record stops only its own partition. Times
are the caller's monotonic seconds.

Partitions that failed together are divided into smaller sets until one fails alone. Then smaller and smaller ranges of
this partition are read until a single record fails. Other partitions are read in between. The failed record is retried
with a back-off. Any thread may call `cleared` and `unreadable`. Only one thread calls the other methods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kafka import TopicPartition

from kctl_agent.replies.workers import UnreadPartition

PARTS = 6
"""Parts of a divided range. If 8 of 40 partitions are bad, 14 reads fail; with halves 23. A failed read takes two to
three times as long as a good one."""
RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
JOIN_SECONDS = 20.0
"""After this time good partitions are cleared, even if the search continues for others."""
HEALTHY_SECONDS = 600.0  # a partition is read carefully for this long after its last bad record

Ranges = Mapping[TopicPartition, tuple[int, int]]
"""Offsets by partition: the first, and the one after the last."""


@dataclass(slots=True)
class _Partition:
    position: int
    goal: int | None = None  # the end of the log when the partition was first seen or last failed
    alone: int = 0
    """The number of records to read next, without other partitions; 0: the partition is read with others."""
    bad_before: int = 0
    """The end of the last failed range, which contains a bad record; if not above `position`, there is none."""
    failures: int = 0
    retry_at: float = 0.0
    bad_at: float | None = None
    why: str = ""


class CarefulSearch:
    def __init__(
        self,
        positions: Mapping[TopicPartition, int],
        most: int,
        wait_seconds: float,
        now: float,
        before: CarefulSearch | None = None,
    ) -> None:
        """Partitions without a bad record are read together when they have `most` records, or after `wait_seconds`.
        `before` is the previous search, whose findings are kept."""
        known = before.partitions if before else {}
        self.partitions: dict[TopicPartition, _Partition] = {
            tp: replace(known[tp]) if tp in known and known[tp].position == at else _Partition(at)
            for tp, at in positions.items()
        }
        self.readable: tuple[TopicPartition, int] | None = before.readable if before else None
        """A record that could be read when another one could not."""
        self._most, self._wait_seconds = most, wait_seconds
        self.good_at: float = before.good_at if before else float("-inf")
        self._join_at = now + JOIN_SECONDS
        self.waiting = deque(self._divided_before(before))
        self._was_good = False

    def next(self, ends: Mapping[TopicPartition, int], now: float) -> Ranges:
        """Returns the ranges to read now. There are none while all partitions wait for records or for a retry."""
        for tp, each in self.partitions.items():
            if each.goal is None:
                each.goal = ends.get(tp)
        while self.waiting:
            if ranges := self._ranges(self.waiting.popleft(), ends):
                return ranges
        good = {} if self._was_good else self._ranges(self._good(), ends)
        is_due = now - self.good_at >= self._wait_seconds or sum(end - at for at, end in good.values()) >= self._most
        self._was_good = bool(good) and is_due
        if not self._was_good:
            return self._failing(ends, now)
        self.good_at = now
        return good

    def done(self, ranges: Ranges) -> None:
        for tp, (_, end) in ranges.items():
            each = self.partitions[tp]
            each.position, each.failures = end, 0
            left = each.bad_before - end
            if each.goal is not None and end >= each.goal:
                each.alone = 0
            elif left <= 0:
                each.alone = min(each.alone * PARTS, self._most)
            elif left <= each.alone:  # it has the bad record, because the other parts had none
                each.alone = max(left // PARTS, 1)

    def failed(self, ranges: Ranges, why: str, now: float) -> None:
        if len(ranges) > 1:
            self.waiting.extend(_divided(ranges))
            return
        [(tp, (start, end))] = ranges.items()
        each = self.partitions[tp]
        each.goal, each.bad_before, each.alone, each.retry_at = None, end, max((end - start) // PARTS, 1), now
        if end - start == 1:
            each.retry_at += RETRY_SECONDS[min(each.failures, len(RETRY_SECONDS) - 1)]
            each.failures, each.bad_at, each.why = each.failures + 1, now, why

    def gave_up(self, tp: TopicPartition, position: int, now: float) -> None:
        """Continues at `position`. Call it when the unreadable records below `position` have become dead letters."""
        each = self.partitions[tp]
        each.position, each.failures, each.alone, each.bad_at, each.retry_at = position, 0, 1, now, now

    def cleared(self, now: float) -> frozenset[TopicPartition]:
        if self.waiting and now < self._join_at:
            return frozenset()
        return frozenset(
            tp
            for tp, each in self.partitions.items()
            if not each.alone
            and (each.goal is not None and each.position >= each.goal)
            and (each.bad_at is None or now - each.bad_at >= HEALTHY_SECONDS)
        )

    def unreadable(self) -> dict[TopicPartition, UnreadPartition]:
        return {
            tp: UnreadPartition(tp.topic, tp.partition, each.why, each.position)
            for tp, each in self.partitions.items()
            if each.failures
        }

    def _divided_before(self, before: CarefulSearch | None) -> list[list[TopicPartition]]:
        old = [[tp for tp in group if tp in self.partitions] for group in (before.waiting if before else ())]
        return [group for group in old if group] + _divided(set(self._good()).difference(*old))

    def _good(self) -> list[TopicPartition]:
        return [tp for tp, each in self.partitions.items() if not each.alone]

    def _ranges(self, partitions: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]) -> Ranges:
        found = {tp: at for tp in partitions if ends.get(tp, 0) > (at := self.partitions[tp].position)}
        share = max(self._most // max(len(found), 1), 1)
        return {tp: (start, min(ends[tp], start + share)) for tp, start in found.items()}

    def _failing(self, ends: Mapping[TopicPartition, int], now: float) -> Ranges:
        due = [
            (each.retry_at, tp)
            for tp, each in self.partitions.items()
            if each.alone and each.retry_at <= now and ends.get(tp, 0) > each.position
        ]
        if not due:
            return {}
        _, tp = min(due)
        each = self.partitions[tp]
        return {tp: (each.position, min(ends[tp], each.position + each.alone))}


def _divided(partitions: Collection[TopicPartition]) -> list[list[TopicPartition]]:
    ordered, size = sorted(partitions), len(partitions)
    parts = [ordered[i * size // PARTS : (i + 1) * size // PARTS] for i in range(PARTS)]
    return [part for part in parts if part]
