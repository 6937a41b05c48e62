"""The driver's side of a put: the contract between the `pipeline` and the kinds of storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kctl_agent.message import Message
from kctl_agent.worker.query.transform import call_transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNEVEN_TASKS = 4
"""Tasks per concurrent task if partitions differ much in size."""


@dataclass(frozen=True, slots=True)
class BatchRange:
    """A batch's offsets of a partition. `end` is exclusive; planned on a stored offset's `version`."""

    start: int
    end: int
    version: int
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class PutDone:
    """`last_timestamps` in Unix seconds, if known (not for a table)."""

    rows: int
    last_timestamps: Mapping[tuple[str, int], float]


def in_few_tasks(frame: DataFrame, ranges: Mapping[tuple[str, int], BatchRange], least_records: int = 1) -> DataFrame:
    """Each task has whole Kafka partitions in offset order. A task with a Python call costs about 50 ms even if empty
    (benchmarks/README.md)."""
    sizes = [size for each in ranges.values() if (size := each.end - each.start) > 0]
    tasks = task_count(sizes, frame.sparkSession.sparkContext.defaultParallelism, least_records)
    return frame.coalesce(tasks) if 0 < tasks < len(sizes) else frame


def task_count(sizes: Collection[int], at_a_time: int, least_records: int = 1) -> int:
    """One per concurrent task; more if equal numbers of partitions would make unequal tasks; fewer if tasks would have
    less than `least_records` on average."""
    largest, total = max(sizes, default=0), sum(sizes)
    is_uneven = largest > 2 * total / max(len(sizes), 1) and largest > total / (UNEVEN_TASKS * at_a_time)
    most = UNEVEN_TASKS * at_a_time if is_uneven else at_a_time
    return min(len(sizes), most, -(-total // least_records))


class BatchPut(ABC):
    """The driver's side of a put. `token` identifies a batch's errors."""

    def __init__(self, transform: Callable[[DataFrame], DataFrame], name: str) -> None:
        self._transform = transform
        self.name = name

    def transformed(self, frame: DataFrame) -> DataFrame:
        return call_transform(self._transform, self.name, frame)

    @abstractmethod
    def check(self, source: DataFrame) -> None: ...

    @abstractmethod
    def stream(self, source: DataFrame) -> DataFrame: ...

    @abstractmethod
    def give_up(
        self, session: SparkSession, messages: Sequence[Message], planned: BatchRange, errors: Sequence[str]
    ) -> None:
        """Makes dead letters of these unchanged messages of one partition, and moves its stored offset past them.
        Raises StorageError: nothing was done, or (a table) only the first of the two."""

    @abstractmethod
    def put(self, frame: DataFrame, ranges: Mapping[tuple[str, int], BatchRange], token: str) -> PutDone:
        """Stores a batch of `stream` and moves stored offsets to the ends of its ranges. On Spark's callback thread."""
