"""One row per partition, from the agents' rows and the brokers' own; what lag and offsets rest on.

The reader of a partition is what the agents report: of two that claim it, the one of the higher generation, then of the
newer offsets. How far it is, by the newest offsets, an agent's or the brokers'. One that nobody claims keeps its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.partitions import PartitionRow, ResetPolicy

__all__ = ["partition_rows"]


def partition_rows(
    answers: Sequence[Answer[tuple[PartitionRow, ...]]], brokers: BrokerSnapshot
) -> tuple[PartitionRow, ...]:
    """The merged rows, sorted by topic and partition. `answers` are those of `kafka_lag` or `offset_checker`."""
    claims: dict[tuple[str, int], PartitionRow] = {}
    ages: dict[str | None, float] = {}
    for answer in per_sender(answers):
        ages[answer.sender] = answer.age_seconds
        for row in answer.result:
            key = row[:2]
            claimed = claims.get(key)
            if claimed is None or _strength(row) > _strength(claimed):
                claims[key] = row
    known = {row[:2]: row for row in brokers.partitions}
    reset = brokers.reset
    merged = []
    for key in sorted(claims.keys() | known.keys()):
        claim, of_brokers = claims.get(key), known.get(key)
        if of_brokers is None:
            assert claim is not None
            merged.append(_alone(claim, ages, reset))
        else:
            merged.append(of_brokers if claim is None else _merged(claim, of_brokers, reset))
    return tuple(merged)


def _strength(row: PartitionRow) -> tuple[int, float]:
    return (-1 if row.generation is None else row.generation), -row.age_seconds


def _alone(claim: PartitionRow, ages: dict[str | None, float], reset: ResetPolicy) -> PartitionRow:
    """An agent that has asked no broker yet has offsets of no age; that it knows nothing is as old as its reply."""
    age = ages[claim.worker] if claim.age_seconds == inf else claim.age_seconds
    if age == claim.age_seconds and reset is claim.reset:
        return claim
    return claim._replace(age_seconds=age, reset=reset)


def _merged(claim: PartitionRow, brokers: PartitionRow, reset: ResetPolicy) -> PartitionRow:
    """Committed and end come from one source, the newer one, so that their difference was true at one moment; the
    other source fills in only what that one does not know."""
    topic, partition, start, committed, position, end, timestamp, worker, generation, age, *_ = claim
    newer, older = (brokers, claim) if brokers.age_seconds < age else (claim, brokers)
    start, committed, end, age = newer.start, newer.committed, newer.end, newer.age_seconds
    if start is None:
        start = older.start
    if committed is None and older.committed is not None:
        committed, age = older.committed, older.age_seconds
    if end is None and older.end is not None:
        end, age = older.end, older.age_seconds
    if age == inf:
        age = brokers.age_seconds
    return PartitionRow(topic, partition, start, committed, position, end, timestamp, worker, generation, age, reset)
