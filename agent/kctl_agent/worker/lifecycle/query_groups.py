"""Divides a worker's partitions between a streaming query and a careful query, which reads suspicious partitions.
Neither query reads partitions without a leader. Times are the caller's monotonic seconds.

If the streaming query fails repeatedly, all its partitions become suspicious. The careful query finds the bad records
(`query.careful_search`). Failures during an outage do not make partitions suspicious.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kafka import TopicPartition

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
MOST_RETRY_SECONDS = 5.0  # the longest back-off during an outage, which may end at any time
SUSPECT_AFTER = 2  # after this many failures in a row, partitions become suspicious

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
        """Divides `partitions` between the streaming and the careful query, in this order. Leaves out empty groups."""
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
        """Records a failed query. Returns the number of failures in a row and the seconds until the next start. Only
        failures with `is_own_fault` (no outage) and `was_read` (the query had started) make partitions suspicious."""
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


@dataclass(frozen=True, slots=True)
class _Out:
    why: str
    since: float
    tries: int
    retry_at: float
    is_read: bool = False


class LeftOut:
    """Partitions that queries leave out because no leader answers. Each is tried again after a back-off."""

    def __init__(self) -> None:
        self._out: dict[TopicPartition, _Out] = {}

    def add(self, unanswered: Mapping[TopicPartition, str], now: float) -> None:
        for tp, why in unanswered.items():
            before = self._out.get(tp)
            tries = 0 if before is None else before.tries + 1
            since = now if before is None or before.is_read else before.since
            self._out[tp] = _Out(why, since, tries, now + RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])

    def take_in(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            if tp in self._out:
                self._out[tp] = replace(self._out[tp], is_read=True)

    def keep(self, assigned: Collection[TopicPartition], now: float) -> None:
        for tp, out in list(self._out.items()):
            if tp not in assigned or (out.is_read and now - out.retry_at > RETRY_SECONDS[-1]):
                del self._out[tp]

    def still(self, answered: Collection[TopicPartition], now: float) -> frozenset[TopicPartition]:
        return frozenset(
            tp for tp, out in self._out.items() if not out.is_read and (tp not in answered or now < out.retry_at)
        )

    def lasting(self, seconds: float, now: float) -> dict[TopicPartition, str]:
        return {tp: out.why for tp, out in self._out.items() if not out.is_read and now - out.since >= seconds}
