"""Divides a worker's partitions between two queries: one streams, a careful one reads suspicious partitions. Pure;
times are the caller's monotonic seconds.

If the streaming query fails repeatedly, all its partitions become suspicious, and the careful query finds the bad
records (`query.careful_search`). Failures during an outage make nothing suspicious.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka import TopicPartition

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
MOST_RETRY_SECONDS = 5.0
"""The longest back-off during an outage, which may end at any time."""
SUSPECT_AFTER = 2
"""After this many failures in a row, partitions become suspicious."""

Group = frozenset[TopicPartition]


@dataclass(slots=True)
class _State:
    failures: int = 0
    faults: int = 0
    retry_at: float = 0.0


class QueryGroups:
    def __init__(self) -> None:
        self.suspects: Group = frozenset()
        self._streaming, self._careful = _State(), _State()

    def plan(self, partitions: Group) -> list[Group]:
        """The partitions of each query, the streaming one first; together they are `partitions`."""
        if partitions:
            self.suspects &= partitions
        return [group for group in (partitions - self.suspects, partitions & self.suspects) if group]

    def is_careful(self, group: Group) -> bool:
        return not group.isdisjoint(self.suspects)

    def is_due(self, group: Group, now: float) -> bool:
        return now >= self._state(group).retry_at

    def failed(
        self, group: Group, now: float, *, is_own_fault: bool = True, was_read: bool = True
    ) -> tuple[int, float]:
        """Records a failed query, or (not `was_read`) one that could not be started. Returns the number of failures in
        a row, and the seconds until the next start."""
        state = self._state(group)
        seconds = RETRY_SECONDS[min(state.failures, len(RETRY_SECONDS) - 1)]
        seconds = seconds if is_own_fault else min(seconds, MOST_RETRY_SECONDS)
        state.failures += 1
        state.faults += is_own_fault and was_read
        state.retry_at = now + seconds
        failures = state.failures
        if state.faults >= SUSPECT_AFTER and state is self._streaming:
            self.suspects |= group
            self._streaming, seconds = _State(), 0.0
        return failures, seconds

    def stored(self, partitions: Group) -> None:
        state = self._state(partitions)
        state.failures = state.faults = 0

    def clear(self, partitions: Group) -> None:
        self.suspects -= partitions

    def _state(self, group: Group) -> _State:
        return self._careful if self.is_careful(group) else self._streaming
