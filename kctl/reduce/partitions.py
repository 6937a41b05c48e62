"""One row per partition, merged from the agents' rows and the brokers' own; lag and offsets rest on these rows.

The reader of a partition is what the agents report: of two that claim it, the one of the higher generation, then of the
newer offsets. How far it is, by the newest offsets, an agent's or the brokers'. One that nobody claims keeps its row.
An attached application, which is of no generation, has rows of its own beside those of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.lag import LagTotals
from kctl.rows.partitions import PartitionRow, ResetPolicy
from kctl_agent.replies.topic_partition import TopicPartition
from kctl_agent.rpc.wire import JsonObject


@dataclass(frozen=True, slots=True)
class Partitions:
    rows: tuple[PartitionRow, ...] = ()
    """The group's partitions, sorted by topic and number, also those that no worker answers for."""
    attached: tuple[PartitionRow, ...] = ()
    """Partitions of attached applications, beside those of the group, sorted by application."""

    @property
    def every(self) -> tuple[PartitionRow, ...]:
        return (*self.rows, *self.attached) if self.attached else self.rows

    def to_json(self) -> JsonObject:
        return {"rows": self.every}


def offset_checker(answers: Sequence[Answer[tuple[PartitionRow, ...]]], brokers: BrokerSnapshot) -> Partitions:
    """Merges rows; `answers` are those of `kafka_lag` or `offset_checker`."""
    claims: dict[tuple[str, int], PartitionRow] = {}
    of_no_group: list[PartitionRow] = []
    ages: dict[str | None, float] = {}
    for answer in per_sender(answers):
        ages[answer.sender] = answer.age_seconds
        for row in answer.result:
            key = row[:2]
            if row.generation is None:
                of_no_group.append(row)
                continue
            claimed = claims.get(key)
            if claimed is None or _strength(row) > _strength(claimed):
                claims[key] = row
    known = {row[:2]: row for row in brokers.partitions}
    reset = brokers.reset
    attached = []
    for row in sorted(of_no_group, key=lambda each: str(each.worker)):
        key = row[:2]
        of_brokers = known.get(key)
        if key in claims or (of_brokers is not None and of_brokers.committed is not None):
            attached.append(_beside(_alone(row, ages, reset), of_brokers))
        else:
            claims[key] = row  # nobody else reads it
    merged = []
    for key in sorted({**known, **claims}):  # of the views' union every key is hashed again: 17 times as long
        claim, of_brokers = claims.get(key), known.get(key)
        if of_brokers is None:
            assert claim is not None
            merged.append(_alone(claim, ages, reset))
        else:
            merged.append(of_brokers if claim is None else _merged(claim, of_brokers, reset))
    return Partitions(tuple(merged), tuple(sorted(attached, key=lambda each: (each.worker or "", *each[:2]))))


def kafka_lag(partitions: Partitions) -> LagTotals:
    """Sums partitions that are reduced already; what waits for attached applications too."""
    topics: dict[str, int | None] = {}
    unknown: list[TopicPartition] = []
    for row in partitions.every:
        topics.setdefault(row.topic, None)
        lag = row.lag
        if lag is None:
            unknown.append(TopicPartition(row.topic, row.partition))
        else:
            topics[row.topic] = (topics[row.topic] or 0) + lag
    known = [lag for lag in topics.values() if lag is not None]
    return LagTotals(sum(known) if known else None, tuple(unknown), topics)


def _strength(row: PartitionRow) -> tuple[int, float]:
    return row.generation or 0, -row.age_seconds


def _beside(claim: PartitionRow, brokers: PartitionRow | None) -> PartitionRow:
    """An attached application's row: what the group has committed is not its own; the end of the log is everybody's."""
    if claim.end is not None or brokers is None or brokers.end is None:
        return claim
    return claim._replace(end=brokers.end, start=brokers.start, age_seconds=brokers.age_seconds)


def _alone(claim: PartitionRow, ages: dict[str | None, float], reset: ResetPolicy) -> PartitionRow:
    """A row without the brokers'. An agent that has asked none yet has offsets of no age; that it knows nothing is as
    old as its reply."""
    age = ages[claim.worker] if claim.age_seconds == inf else claim.age_seconds
    if age == claim.age_seconds and reset is claim.reset:
        return claim
    return claim._replace(age_seconds=age, reset=reset)


def _merged(claim: PartitionRow, brokers: PartitionRow, reset: ResetPolicy) -> PartitionRow:
    """Merges an agent's and the brokers' row: committed and end come from one source, the newer one, so that their
    difference was true at one moment; the other source fills in only what that one does not know."""
    topic, partition, start, committed, position, end, timestamp, worker, generation, age, *_ = claim
    newer, older = (brokers, claim) if brokers.age_seconds < age else (claim, brokers)
    start, committed, end, age = newer.start, newer.committed, newer.end, newer.age_seconds
    if start is None:
        start = older.start
    if committed is None and older.committed is not None:
        committed, age = older.committed, older.age_seconds
    if end is None and older.end is not None:
        end, age = max(older.end, committed or 0), older.age_seconds  # not below what is newer
    if age == inf:
        age = brokers.age_seconds
    return PartitionRow(topic, partition, start, committed, position, end, timestamp, worker, generation, age, reset)
