"""The contract of reducers, which are pure: no clock, no I/O, and neither order nor repetition matters.

Every reducer depends on the newest answer of each sender alone (`per_sender`), so answers may also be brought together
in groups, and groups of groups, before they are reduced.
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
_NO_PARTITIONS = PartitionColumns()
R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """What one agent replied: its result, and how old the snapshot was that it replied from."""

    sender: str
    result: R
    age_seconds: float
    kept_seconds: float = 0.0
    """Seconds since it came, which are in `age_seconds`, and by which ages in `result` are too low."""

    def of(self, part: T) -> Answer[T]:
        """Returns the answer with this in place of its result."""
        return Answer(self.sender, part, self.age_seconds, self.kept_seconds)

    def kept(self, seconds: float) -> Answer[R]:
        """Returns the answer as it is so much later."""
        return Answer(self.sender, self.result, self.age_seconds + seconds, self.kept_seconds + seconds)


@dataclass(frozen=True, slots=True)
class GroupStats:
    """The consumer group as its coordinator sees it, members of other clients included."""

    state: str
    """Kafka's words: `stable`, `preparing_rebalance`, `completing_rebalance`, `empty`, `dead`, ..."""
    members: int

    @classmethod
    def of(cls, state: str | None, members: int | None) -> GroupStats | None:
        """Returns stats with Kafka's word as brokers have it, `PreparingRebalance`; None where either is not known."""
        return None if state is None or members is None else cls(_state(state), members)


@lru_cache(_KEPT_STATES)
def _state(word: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower()


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """The brokers' own view: every partition of the configured topics, whether a worker answers for it or not."""

    partitions: PartitionColumns = _NO_PARTITIONS
    """One group, without what only a worker knows; no partition as long as the brokers were never reached. Their `now`
    is the moment of the snapshot."""
    group: GroupStats | None = None
    """The group; None when the coordinator did not reply to the last poll: old news of members would be no news."""
    reset: ResetPolicy = ResetPolicy.EARLIEST
    """The reset policy, which decides what lag is where the group has never committed."""
    assigned: tuple[tuple[str, Mapping[str, tuple[int, ...]]], ...] = ()
    """The client id of each member and its partitions by topic, as the coordinator reported them last."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long ago the brokers answered the master, and from what age on their offsets are stale."""

    age_seconds: float | None
    """Age of the last answer of any broker; None: there was none."""
    complete_age_seconds: float | None
    """Age of the last poll that was answered in full; None: there was none."""
    stale_after_seconds: float
    """Age from which on offsets are stale: three collect intervals, 5 s at least; of the interval that is kept to,
    where collections take longer than the configured one."""
    error: str | None
    """Why the last poll failed, in whole or in part."""
    missing_topics: tuple[str, ...] = ()
    """Configured topics that did not exist when the brokers answered last."""

    def to_json(self) -> JsonObject:
        return {
            "age_seconds": self.complete_age_seconds,
            "stale_after_seconds": self.stale_after_seconds,
            "error": self.error,
        }


Reducer: TypeAlias = Callable[[Sequence[Answer[R]], BrokerSnapshot], T]
"""A function of agents' answers and the brokers' view to the result of a command."""


def per_sender(answers: Iterable[Answer[R]]) -> list[Answer[R]]:
    """Returns the newest answer of each sender, sorted by sender."""
    newest: dict[str, Answer[R]] = {}
    for answer in answers:
        known = newest.get(answer.sender)
        if known is None or _is_newer(answer, known):
            newest[answer.sender] = answer
    return [answer for _, answer in sorted(newest.items(), key=lambda each: each[0])]


def _is_newer(answer: Answer[R], other: Answer[R]) -> bool:
    """Whether one is newer. Of two of one age either may win, but always the same one, in whatever order they came."""
    if answer.age_seconds != other.age_seconds:
        return answer.age_seconds < other.age_seconds
    return repr(answer.result) < repr(other.result)


def newest_rows(answers: Iterable[Answer[tuple[R, ...]]], key: Callable[[R], K]) -> dict[K, R]:
    """Returns the rows of all answers by `key`; of rows with one key, the newest answer's."""
    newest: dict[K, R] = {}
    for answer in sorted(per_sender(answers), key=lambda each: each.age_seconds):
        for row in answer.result:
            newest.setdefault(key(row), row)
    return newest
