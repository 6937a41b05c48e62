"""The reducers that `kctl_agent.replies.questions` names, except those in `partitions`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

from kctl.reduce.base import Answer, BrokerSnapshot, Reducer, newest_rows, per_sender
from kctl.rows.workers import GroupMembers, MemberRow, Pings, WorkerRow, Workers
from kctl_agent.replies.block_size import RecentDeadLetters, StorageReply
from kctl_agent.replies.encode import aged
from kctl_agent.replies.member_leader import MemberReply
from kctl_agent.replies.workers import PingReply

R = TypeVar("R")


def union(kind: type[R], listed: str, *key: str) -> Reducer[R, R]:
    make: Any = kind
    rows_of, key_of = attrgetter(listed), attrgetter(*key)

    def reduce(answers: Sequence[Answer[R]], _brokers: BrokerSnapshot) -> R:
        rows = newest_rows([answer.of(rows_of(answer.result)) for answer in answers], key_of)
        union_of_all: R = make(tuple(rows[each] for each in sorted(rows)))
        return union_of_all

    return reduce


def block_size(answers: Sequence[Answer[StorageReply]], _brokers: BrokerSnapshot) -> StorageReply:
    """Counts a shared storage once. Leaves out workers that have not opened their storage yet."""
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
    """Workers that have not joined do not affect leader and generation."""
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
    """Names each by its socket, whatever name it reports."""
    return Pings(tuple(replace(answer.result, name=answer.sender) for answer in per_sender(answers)))


def workers(answers: Sequence[Answer[WorkerRow]], _brokers: BrokerSnapshot) -> Workers:
    """Names each process by its socket, whatever name it reports. The master adds the supervisor's view."""
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
