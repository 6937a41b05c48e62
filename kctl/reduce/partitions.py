"""One row per partition, merged from the agents' rows and the brokers' own; lag and offsets rest on these rows.

The reader of a partition is what the agents report: of two that claim it, the one of the higher generation, then of the
newer offsets. How far it is, by the newest offsets, an agent's or the brokers'. One that nobody claims keeps its row.
An attached application, which is of no generation, has rows of its own beside those of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import TypeAlias

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.lag import LagTotals
from kctl.rows.partitions import PartitionRow, ResetPolicy
from kctl_agent.replies.partitions import PartitionReply, PartitionsReply
from kctl_agent.replies.topic_partition import TopicPartition
from kctl_agent.rpc.wire import JsonObject

_Claim: TypeAlias = tuple[PartitionReply, Answer[PartitionsReply]]
"""An agent's row and the answer that it came with."""


@dataclass(frozen=True)
class Partitions:
    rows: tuple[PartitionRow, ...] = ()
    """The group's partitions, sorted by topic and number, also those that no worker answers for."""
    attached: tuple[PartitionRow, ...] = ()
    """Partitions of attached applications, beside those of the group, sorted by application."""

    @cached_property
    def every(self) -> tuple[PartitionRow, ...]:
        return (*self.rows, *self.attached) if self.attached else self.rows

    @cached_property
    def lags(self) -> tuple[int | None, ...]:
        """The lag of each of `every`."""
        return tuple(row.lag for row in self.every)

    def unknown(self, rows: Sequence[PartitionRow]) -> list[PartitionRow]:
        """Those of `rows` or `every` whose lag is not known."""
        return [row for row, lag in zip(rows, self.lags, strict=False) if lag is None]

    def to_json(self) -> JsonObject:
        return {"rows": self.every}


def offset_checker(answers: Sequence[Answer[PartitionsReply]], brokers: BrokerSnapshot) -> Partitions:
    """Merges rows; `answers` are those of `kafka_lag` or `offset_checker`."""
    claims: dict[tuple[str, int], _Claim] = {}
    of_no_group: list[_Claim] = []
    for answer in per_sender(answers):
        for row in answer.result.rows:
            key, claim = (row.topic, row.partition), (row, answer)
            if row.generation is None:
                of_no_group.append(claim)
            elif (claimed := claims.get(key)) is None or _strength(claim) > _strength(claimed):
                claims[key] = claim
    attached = _attached(of_no_group, claims, brokers) if of_no_group else ()
    merged = [_merged(claims.pop(row[:2], None), row, brokers) for row in brokers.partitions]
    merged += [_alone(claim, brokers.reset) for claim in claims.values()]
    return Partitions(tuple(sorted(merged)), attached)  # tuples that begin with topic and number, each there once


def kafka_lag(partitions: Partitions) -> LagTotals:
    """Sums the group's partitions, which are reduced already. Attached applications are groups of their own."""
    topics: dict[str, int | None] = {}
    lags = iter(partitions.lags)
    for topic, rows in groupby(partitions.rows, itemgetter(0)):
        known = [lag for _, lag in zip(rows, lags, strict=False) if lag is not None]
        topics[topic] = sum(known) if known else None
    unknown = tuple(TopicPartition(row.topic, row.partition) for row in partitions.unknown(partitions.rows))
    totals = [lag for lag in topics.values() if lag is not None]
    behind = [row.behind_transaction for row in partitions.rows if row.behind_transaction is not None]
    return LagTotals(sum(totals) if totals else None, unknown, topics, sum(behind) if behind else None)


def _strength(claim: _Claim) -> tuple[int, float]:
    return claim[0].generation or 0, -_age(claim)


def _age(claim: _Claim) -> float:
    """Returns the age of an agent's offsets: infinite where it has asked no broker yet."""
    row, answer = claim
    return inf if row.age_seconds is None else row.age_seconds + answer.kept_seconds


def _attached(
    of_no_group: Iterable[_Claim], claims: dict[tuple[str, int], _Claim], brokers: BrokerSnapshot
) -> tuple[PartitionRow, ...]:
    """Returns the rows of attached applications. Where nobody else reads a partition of the fleet's topics, the
    application is its reader, and its claim is added to `claims`."""
    known = {row[:2]: row for row in brokers.partitions}
    attached = []
    for claim in of_no_group:
        key = claim[0].topic, claim[0].partition
        of_brokers = known.get(key)
        if key in claims or of_brokers is None or of_brokers.committed is not None:
            attached.append(_beside(_alone(claim, brokers.reset), of_brokers, brokers.kept_seconds))
        else:
            claims[key] = claim
    return tuple(sorted(attached, key=lambda each: (each.worker or "", *each[:2])))


def _beside(claim: PartitionRow, brokers: PartitionRow | None, kept_seconds: float) -> PartitionRow:
    """An attached application's row: what the group has committed is not its own; the end of the log is everybody's."""
    if claim.end is not None or brokers is None or brokers.end is None:
        return claim
    return claim._replace(end=brokers.end, start=brokers.start, age_seconds=brokers.age_seconds + kept_seconds)


def _alone(claim: _Claim, reset: ResetPolicy) -> PartitionRow:
    """A row without the brokers'. An agent that has asked none yet has offsets of no age; that it knows nothing is as
    old as its reply."""
    row, answer = claim
    age = answer.age_seconds if row.age_seconds is None else _age(claim)
    offsets = row.start, row.committed, row.position, row.end, row.last_timestamp
    of_reader = answer.sender, row.generation, age, reset
    messages, seconds = _stored(claim)
    return PartitionRow(
        row.topic, row.partition, *offsets, *of_reader, stored_messages=messages, stored_seconds=seconds
    )


def _stored(claim: _Claim) -> tuple[int | None, float | None]:
    """The messages of a partition that wait in the storage, and the age of the oldest."""
    row, answer = claim
    oldest = row.stored_seconds
    return row.stored_messages, None if oldest is None else oldest + answer.kept_seconds


def _merged(claim: _Claim | None, of_brokers: PartitionRow, brokers: BrokerSnapshot) -> PartitionRow:
    """Merges an agent's and the brokers' row: committed and end come from one source, the newer one, so that their
    difference was true at one moment; the other source fills in only what that one does not know."""
    age = brokers_age = of_brokers.age_seconds + brokers.kept_seconds
    if claim is None:
        return of_brokers._replace(age_seconds=age)
    row, answer = claim
    own_age = inf if row.age_seconds is None else row.age_seconds + answer.kept_seconds
    newer: PartitionRow | PartitionReply = of_brokers
    older: PartitionRow | PartitionReply = row
    older_age = own_age
    if own_age <= age:
        newer, older, age, older_age = row, of_brokers, own_age, age
    start, committed, end = newer.start, newer.committed, newer.end
    if start is None:
        start = older.start
    if committed is None and older.committed is not None:
        committed, age = older.committed, older_age
    if end is None and older.end is not None:
        end, age = max(older.end, committed or 0), older_age  # not below what is newer
    return PartitionRow._make(
        (
            row.topic,
            row.partition,
            start,
            committed,
            row.position,
            end,
            row.last_timestamp,
            answer.sender,
            row.generation,
            brokers_age if age == inf else age,
            brokers.reset,
            None,
            of_brokers.behind_transaction,
            *_stored(claim),
        )
    )
