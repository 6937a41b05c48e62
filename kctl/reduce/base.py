"""The contract of reducers: pure, without clock and I/O, and independent of order and repetition.

A reducer uses only the newest answer of each sender (`per_sender`), so answers may be grouped before they are reduced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeAlias, TypeVar

from kctl.rows.columns import PartitionColumns
from kctl.rows.partitions import ResetPolicy
from kctl_agent.rpc.wire import JsonObject

_KEPT_STATES = 100
_REBALANCING = frozenset({"preparing_rebalance", "completing_rebalance", "assigning", "reconciling"})
_NO_PARTITIONS = PartitionColumns()
R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """One agent's result. `age_seconds` is that of the agent's snapshot."""

    sender: str
    result: R
    age_seconds: float
    kept_seconds: float = 0.0
    """Seconds since the answer arrived: included in `age_seconds`, but not in ages within `result`."""

    def of(self, part: T) -> Answer[T]:
        return Answer(self.sender, part, self.age_seconds, self.kept_seconds)

    def kept(self, seconds: float) -> Answer[R]:
        return Answer(self.sender, self.result, self.age_seconds + seconds, self.kept_seconds + seconds)


@dataclass(frozen=True, slots=True)
class GroupStats:
    """The group's state, and its members, including those of other clients."""

    state: str
    """Kafka's words: `stable`, `preparing_rebalance`, `completing_rebalance`, `empty`, `dead`, ..."""
    members: int

    @property
    def is_rebalancing(self) -> bool:
        return self.state in _REBALANCING

    @classmethod
    def of(cls, state: str | None, members: int | None) -> GroupStats | None:
        """Converts the brokers' word, such as `PreparingRebalance`."""
        return None if state is None or members is None else cls(_state(state), members)


@lru_cache(_KEPT_STATES)
def _state(word: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower()


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """The brokers' view: all partitions of the configured topics, whether or not a worker reports them."""

    partitions: PartitionColumns = _NO_PARTITIONS
    """Does not have the columns that only workers know; empty before the first answer. `now` is when it was taken."""
    group: GroupStats | None = None
    """None if the coordinator did not answer the last poll, because old news about members would mislead."""
    reset: ResetPolicy = ResetPolicy.EARLIEST
    """Defines the lag if the group has never committed."""
    assigned: tuple[tuple[str, Mapping[str, tuple[int, ...]]], ...] = ()


@dataclass(frozen=True, slots=True)
class Freshness:
    age_seconds: float | None
    complete_age_seconds: float | None
    stale_after_seconds: float
    """Three collect intervals, at least 5 s; if collections take longer than the configured interval, three of the
    actual one."""
    error: str | None
    missing_topics: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            "age_seconds": self.complete_age_seconds,
            "stale_after_seconds": self.stale_after_seconds,
            "error": self.error,
        }


Reducer: TypeAlias = Callable[[Sequence[Answer[R]], BrokerSnapshot], T]


def per_sender(answers: Iterable[Answer[R]]) -> list[Answer[R]]:
    newest: dict[str, Answer[R]] = {}
    for answer in answers:
        known = newest.get(answer.sender)
        if known is None or _is_newer(answer, known):
            newest[answer.sender] = answer
    return [answer for _, answer in sorted(newest.items(), key=lambda each: each[0])]


def _is_newer(answer: Answer[R], other: Answer[R]) -> bool:
    """Breaks ties by content, so that the order of answers does not matter."""
    if answer.age_seconds != other.age_seconds:
        return answer.age_seconds < other.age_seconds
    return repr(answer.result) < repr(other.result)


def newest_rows(answers: Iterable[Answer[tuple[R, ...]]], key: Callable[[R], K]) -> dict[K, R]:
    """Rows by `key`; the newest answer wins."""
    newest: dict[K, R] = {}
    for answer in sorted(per_sender(answers), key=lambda each: each.age_seconds):
        for row in answer.result:
            newest.setdefault(key(row), row)
    return newest
