"""One row per partition, from the agents' rows and the brokers' own figures; what lag and offsets rest on.

Who reads a partition is told by the agents: of two that claim it, the one of the higher generation, then of the younger
figures. How far it is, by the youngest figures, an agent's or the brokers'. One that nobody claims keeps its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple, TypeAlias

from kctl.reduce.base import Answer, ClusterFigures, ClusterPartition, per_sender
from kctl_agent.wire import JsonObject

__all__ = ["PartitionRow", "partition_rows"]


class PartitionRow(NamedTuple):
    """What is known of a partition; `age_seconds` is that of `committed` and `end`."""

    topic: str
    partition: int
    start: int | None
    committed: int | None
    position: int | None
    end: int | None
    last_timestamp: float | None
    """Unix seconds: Kafka's timestamp of the last record that was stored."""
    worker: str | None
    generation: int | None
    age_seconds: float

    @property
    def lag(self) -> int | None:
        """End offset minus committed offset, never negative. Nothing committed yet: minus the worker's position."""
        read = self.position if self.committed is None else self.committed
        if self.end is None or read is None:
            return None
        lag = self.end - read
        return lag if lag > 0 else 0


def partition_rows(answers: Sequence[Answer], cluster: ClusterFigures | None) -> list[PartitionRow]:
    """The merged rows, sorted by topic and partition. `answers` are those of `kafka_lag` or `offset_checker`."""
    claims: dict[tuple[str, int], _Claim] = {}
    for answer in per_sender(answers):
        for row in answer.result.get("rows") or ():
            key = (row["topic"], row["partition"])
            claimed = claims.get(key)
            if claimed is None or _strength(row) > _strength(claimed[1]):
                claims[key] = (answer, row)
    brokers = {(known.topic, known.partition): known for known in cluster.partitions} if cluster else {}
    return [_merged(key, claims.get(key), brokers.get(key)) for key in sorted(claims.keys() | brokers.keys())]


_Claim: TypeAlias = tuple[Answer, JsonObject]
"""An answer, and the row of it that speaks of the partition."""


def _strength(row: JsonObject) -> tuple[int, float]:
    generation, age = row.get("generation"), row.get("age_seconds")
    return (-1 if generation is None else generation), (-inf if age is None else -age)


def _either(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _age_of(is_of_one: bool, age: float | None, brokers_age: float) -> float:
    """Of the younger source, unless the older one had to fill in something."""
    if age is None:
        return brokers_age
    return min(age, brokers_age) if is_of_one else max(age, brokers_age)


def _merged(key: tuple[str, int], claim: _Claim | None, brokers: ClusterPartition | None) -> PartitionRow:
    """Committed and end come from one source, the younger one, so that their difference was true at one moment; the
    other source fills in only what that one does not know."""
    if claim is None:
        assert brokers is not None
        told_by_brokers = brokers.start, brokers.committed, None, brokers.end
        return PartitionRow(*key, *told_by_brokers, None, None, None, brokers.age_seconds)
    answer, row = claim
    told = row.get
    start, committed, end, age = told("start"), told("committed"), told("end"), told("age_seconds")
    if brokers is not None:
        own, theirs = (committed, end), (brokers.committed, brokers.end)
        is_younger = age is None or brokers.age_seconds < age
        first, second = (theirs, own) if is_younger else (own, theirs)
        start = _either(brokers.start, start) if is_younger else _either(start, brokers.start)
        committed, end = map(_either, first, second)
        age = _age_of((committed, end) == first, age, brokers.age_seconds)
    if age is None:
        # A worker that has asked no broker yet has figures of no age; that it knows nothing is as old as its answer.
        age = answer.age_seconds
    position, last_timestamp, generation = told("position"), told("last_timestamp"), told("generation")
    return PartitionRow(*key, start, committed, position, end, last_timestamp, answer.sender, generation, age)
