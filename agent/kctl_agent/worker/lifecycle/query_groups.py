"""The distribution of a worker's partitions over queries: all in one, unless it fails again and again.

Then it is halved, until the partition that makes it fail is alone in a query of its own, which is tried on with a
back-off while the others are read. What has not failed for a while comes together again. What fails while something
outside is away splits nothing. Pure: times are the caller's monotonic seconds. For one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kafka import TopicPartition

RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Back-off between starts of a query that ended by itself."""
MOST_RETRY_SECONDS = 5.0
"""The longest back-off while something outside is away, which may come back at any time."""
SPLIT_AFTER = 3
"""Failures in a row, without a batch between them, from which on a query is halved: the cause is in its partitions."""
MOST_QUERIES = 8
HEALTHY_SECONDS = 30.0
"""Seconds without a failure after which a group of partitions is read with the others again."""

Group = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class _State:
    since: float = 0.0
    """When the group was made, or failed last."""
    failures: int = 0
    """Failures in a row."""
    faults: int = 0
    """How many of the failures are the partitions' own."""
    retry_at: float = 0.0
    why: str = ""


class QueryGroups:
    """Partitions by query. `plan` returns which queries there should be; `failed` and `stored` what became of them."""

    def __init__(self) -> None:
        self._apart: dict[Group, _State] = {}
        self._rest = _State()
        """State of the query with all partitions that are in no group apart."""

    def plan(self, partitions: Collection[TopicPartition], now: float) -> list[Group]:
        """Returns the partitions of each query; together they are `partitions`."""
        partitions = frozenset(partitions)
        if partitions:
            self._apart = {group: state for group, state in self._apart.items() if group & partitions}
            self._join(now)
        apart = [group & partitions for group in self._apart]
        rest = partitions.difference(*apart)
        return [group for group in (rest, *apart) if group]

    def is_due(self, group: Group, now: float) -> bool:
        """Whether the query of this group may be started."""
        return now >= self._state(group).retry_at

    def failed(self, group: Group, why: str, now: float, *, is_own_fault: bool = True) -> tuple[int, float]:
        """Records that the query of a group could not be started, or ended by itself. Returns how often in a row, and
        after how many seconds it is to be started again; where it was halved, that holds for both halves."""
        before = self._state(group)
        failures, faults = before.failures + 1, before.faults + is_own_fault
        seconds = RETRY_SECONDS[min(before.failures, len(RETRY_SECONDS) - 1)]
        seconds = seconds if is_own_fault else min(seconds, MOST_RETRY_SECONDS)
        self._set(group, _State(now, failures, faults, now + seconds, why))
        if is_own_fault and faults >= SPLIT_AFTER and (len(self._apart) < MOST_QUERIES or len(group) == 1):
            self._split(group, now + seconds)
        return failures, seconds

    def stored(self, partitions: Collection[TopicPartition]) -> None:
        """Records that a batch of the query of these partitions is stored."""
        for group in {self._key(tp) for tp in partitions}:
            if group is None:
                self._rest = replace(self._rest, failures=0, faults=0, why="")
            else:
                self._apart[group] = replace(self._apart[group], failures=0, faults=0, why="")

    def isolated(self) -> dict[TopicPartition, str]:
        """Returns the partitions whose query fails while they are alone in it, with the reasons."""
        found: Mapping[Group, _State] = {group: state for group, state in self._apart.items() if len(group) == 1}
        return {tp: state.why for group, state in found.items() for tp in group if state.faults >= SPLIT_AFTER}

    def _split(self, group: Group, retry_at: float) -> None:
        """Halves a group; a partition that is alone becomes a group of its own."""
        ordered = sorted(group)
        middle = len(ordered) // 2
        whole, state = self._key(ordered[0]), self._state(group)
        if whole is not None:
            del self._apart[whole]
        else:
            self._rest = _State()
        if not middle:
            self._apart[group] = state
            return
        for half in (ordered[:middle], ordered[middle:]):
            self._apart[frozenset(half)] = _State(since=retry_at, retry_at=retry_at)

    def _join(self, now: float) -> None:
        for group, state in list(self._apart.items()):
            if state.failures == 0 and now - state.since >= HEALTHY_SECONDS:
                del self._apart[group]

    def _key(self, tp: TopicPartition) -> Group | None:
        return next((group for group in self._apart if tp in group), None)

    def _state(self, group: Group) -> _State:
        key = self._key(min(group))
        return self._rest if key is None else self._apart[key]

    def _set(self, group: Group, state: _State) -> None:
        key = self._key(min(group))
        if key is None:
            self._rest = state
        else:
            self._apart[key] = state
