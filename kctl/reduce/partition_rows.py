"""One row per partition, from the agents' rows and the brokers' own figures; what lag and offsets rest on.

Who reads a partition is told by the agents: of two that claim it, the one of the higher generation, then of the younger
figures. How far it is, by the youngest figures, an agent's or the brokers'. One that nobody claims keeps its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from kctl.reduce.base import Answer, ClusterFigures, ClusterPartition, per_sender
from kctl_agent.wire import JsonObject

__all__ = ["PartitionRow", "partition_rows"]


@dataclass(frozen=True, slots=True)
class PartitionRow:
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
        return max(self.end - read, 0)


def partition_rows(answers: Sequence[Answer], cluster: ClusterFigures | None) -> list[PartitionRow]:
    """The merged rows, sorted by topic and partition. `answers` are those of `kafka_lag` or `offset_checker`."""
    claims: dict[tuple[str, int], Answer] = {}
    for answer in per_sender(answers):
        for row in answer.result.get("rows") or ():
            key = (row["topic"], row["partition"])
            if key not in claims or _strength(row) > _strength(claims[key].result):
                claims[key] = Answer(answer.sender, row, answer.age_seconds)
    brokers = {(known.topic, known.partition): known for known in cluster.partitions} if cluster else {}
    return [_merged(key, claims.get(key), brokers.get(key)) for key in sorted(claims.keys() | brokers.keys())]


def _strength(row: JsonObject) -> tuple[int, float]:
    generation, age = row.get("generation"), row.get("age_seconds")
    return (-1 if generation is None else generation), (-inf if age is None else -age)


def _merged(key: tuple[str, int], claim: Answer | None, brokers: ClusterPartition | None) -> PartitionRow:
    """Committed and end come from one source, the younger one, so that their difference was true at one moment; the
    other source fills in only what that one does not know."""
    row: JsonObject = claim.result if claim else {}
    figures = [(row.get("age_seconds"), row.get("start"), row.get("committed"), row.get("end"))]
    if brokers is not None:
        figures.append((brokers.age_seconds, brokers.start, brokers.committed, brokers.end))
    figures.sort(key=lambda source: inf if source[0] is None else source[0])
    start, committed, end = (next((source[i] for source in figures if source[i] is not None), None) for i in (1, 2, 3))
    age, answer_age = figures[0][0], claim.age_seconds if claim else 0.0
    return PartitionRow(
        *key,
        start=start,
        committed=committed,
        position=row.get("position"),
        end=end,
        last_timestamp=row.get("last_timestamp"),
        worker=claim.sender if claim else None,
        generation=row.get("generation"),
        # A worker that has asked no broker yet has figures of no age; that it knows nothing is as old as its answer.
        age_seconds=answer_age if age is None else age,
    )
