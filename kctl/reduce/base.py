"""Reducers: pure functions that make one result from the answers of all agents.

A reducer uses only the newest answer of each agent. The order of the answers does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from operator import attrgetter
from typing import Any, Generic, TypeAlias, TypeVar

from kctl.rows.columns import PartitionColumns
from kctl.rows.partitions import ResetPolicy
from kctl.rows.workers import GroupMembers, MemberRow, Pings, WorkerRow, Workers
from kctl_agent.replies.block_size import RecentDeadLetters, StorageReply
from kctl_agent.replies.encode import aged
from kctl_agent.replies.partitions import MemberReply
from kctl_agent.replies.workers import PingReply
from kctl_agent.rpc.wire import JsonObject

_REBALANCING = frozenset({"preparing_rebalance", "completing_rebalance", "assigning", "reconciling"})
_NO_PARTITIONS = PartitionColumns()
R = TypeVar("R")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Answer(Generic[R]):
    """One agent's result. `age_seconds` is the age of the agent's snapshot."""

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
    """A group's state and number of members, as the brokers report them."""

    state: str
    """Kafka's words: `stable`, `preparing_rebalance`, `completing_rebalance`, `empty`, `dead`, ..."""
    members: int

    @property
    def is_rebalancing(self) -> bool:
        return self.state in _REBALANCING

    @classmethod
    def of(cls, state: str | None, members: int | None) -> GroupStats | None:
        """Returns None if a value is None. `state` is as the brokers report it, such as `PreparingRebalance`."""
        return None if state is None or members is None else cls(_state(state), members)


@lru_cache(100)
def _state(word: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower()


@dataclass(frozen=True, slots=True)
class BrokerSnapshot:
    """What the brokers report: all partitions of the configured topics, even if no worker reports them."""

    partitions: PartitionColumns = _NO_PARTITIONS
    """Without the columns that only workers know; empty before the brokers' first answer. `now` is when the snapshot
    was taken."""
    group: GroupStats | None = None
    """None if the coordinator did not answer the last poll, because old news about members would mislead."""
    reset: ResetPolicy = ResetPolicy.EARLIEST  # defines the lag if the group has never committed
    assigned: tuple[tuple[str, Mapping[str, tuple[int, ...]]], ...] = ()


@dataclass(frozen=True, slots=True)
class Freshness:
    age_seconds: float | None
    complete_age_seconds: float | None
    stale_after_seconds: float
    """Three collect intervals, but at least 5 s. If collections take longer than the configured interval, the actual
    interval counts."""
    error: str | None
    missing_topics: tuple[str, ...] = ()
    are_just_back: bool = False
    """Leaders and replicas that agents report may still be those from before."""

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
    if answer.age_seconds != other.age_seconds:
        return answer.age_seconds < other.age_seconds
    return repr(answer.result) < repr(other.result)  # so that the order of answers does not matter


def newest_rows(answers: Iterable[Answer[tuple[R, ...]]], key: Callable[[R], K]) -> dict[K, R]:
    newest: dict[K, R] = {}
    for answer in sorted(per_sender(answers), key=lambda each: each.age_seconds):
        for row in answer.result:
            newest.setdefault(key(row), row)
    return newest


def union(kind: type[R], listed: str, *key: str) -> Reducer[R, R]:
    make: Any = kind
    rows_of, key_of = attrgetter(listed), attrgetter(*key)

    def reduce(answers: Sequence[Answer[R]], _brokers: BrokerSnapshot) -> R:
        rows = newest_rows([answer.of(rows_of(answer.result)) for answer in answers], key_of)
        union_of_all: R = make(tuple(rows[each] for each in sorted(rows)))
        return union_of_all

    return reduce


def block_size(answers: Sequence[Answer[StorageReply]], _brokers: BrokerSnapshot) -> StorageReply:
    """Adds up storage counts and sizes. Counts a shared storage once. Leaves out storages that are not open yet."""
    counts = [(answer.sender, aged(answer.result, answer.kept_seconds), answer.age_seconds) for answer in answers]
    rows: list[Answer[tuple[StorageReply, ...]]] = [
        Answer(sender, (row,), max(age, _age(row))) for sender, row, age in counts
    ]
    known = [row for storage, row in newest_rows(rows, lambda row: row.storage).items() if storage is not None]
    return StorageReply(
        pending=_sum([row.pending for row in known]),
        delayed=_sum([row.delayed for row in known]),
        processing=_sum([row.processing for row in known]),
        dead=_sum([row.dead for row in known]),
        oldest_seconds=max((row.oldest_seconds for row in known if row.oldest_seconds is not None), default=None),
        bytes=_sum([row.bytes for row in known]),
        limit=_sum([row.limit for row in known]),
        limit_bytes=_sum([row.limit_bytes for row in known]),
        dead_limit=_sum([row.dead_limit for row in known]),
        free_bytes=min((row.free_bytes for row in known if row.free_bytes is not None), default=None),
        table=known[0].table if len(known) == 1 else None,
        recent_dead=_recent_dead([row.recent_dead for row in known if row.recent_dead is not None]),
        full=_texts(row.full for row in known),
        error=_texts(row.error for row in known),
        age_seconds=max((row.age_seconds for row in known if row.age_seconds is not None), default=None),
    )


def member_leader(answers: Sequence[Answer[MemberReply]], _brokers: BrokerSnapshot) -> GroupMembers:
    """Returns members, leader and generation of the group. Workers that have not joined count only as members."""
    newest = per_sender(answers)
    generations = {each.result.generation for each in newest if each.result.generation is not None}
    leaders = {each.result.leader for each in newest if each.result.leader is not None}
    # a static member may have a new id by now
    own = [each.result.member_id for each in newest if each.result.is_leader]
    return GroupMembers(
        leader=next(iter(own or leaders)) if len(leaders) == 1 else None,
        generation=max(generations, default=None),
        agreed=len(generations) <= 1 and len(leaders) <= 1,
        members=tuple(_member(each.sender, each.result) for each in newest),
    )


def ping(answers: Sequence[Answer[PingReply]], _brokers: BrokerSnapshot) -> Pings:
    """Returns the ping replies of all processes. Each process is named by its socket, not by its reply."""
    return Pings(tuple(replace(answer.result, name=answer.sender) for answer in per_sender(answers)))


def workers(answers: Sequence[Answer[WorkerRow]], _brokers: BrokerSnapshot) -> Workers:
    return Workers(
        tuple(
            replace(answer.result, name=answer.sender, age_seconds=answer.age_seconds, supervisor=None)
            for answer in per_sender(answers)
        )
    )


def _recent_dead(known: list[RecentDeadLetters]) -> RecentDeadLetters | None:
    if not known:
        return None
    most = max(known, key=lambda each: (each.count, each.error_class or ""))
    firsts = [each.first_seconds for each in known if each.first_seconds is not None]
    lasts = [each.last_seconds for each in known if each.last_seconds is not None]
    count = sum(each.count for each in known)
    return RecentDeadLetters(count, most.error_class, max(firsts, default=None), min(lasts, default=None))


def _age(row: StorageReply) -> float:
    if row.age_seconds is None:
        return inf if row.error else 0.0
    return row.age_seconds


def _texts(texts: Iterable[str | None]) -> str | None:
    return "; ".join(sorted({text for text in texts if text})) or None


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def _member(worker: str, reply: MemberReply) -> MemberRow:
    partitions = tuple(sorted(reply.partitions, key=attrgetter("topic", "partition")))
    return MemberRow(reply.member_id, worker, reply.is_leader, reply.generation, partitions)
