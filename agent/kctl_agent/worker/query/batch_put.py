"""The driver's part in storing a batch. `BatchPut` is the interface between `pipeline` and the kinds of storage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kctl_agent.message import Message
from kctl_agent.spark.without_pandas import map_in_arrow
from kctl_agent.storage.base import Storage
from kctl_agent.storage.chunk import Advance
from kctl_agent.worker.query.put import RESULT_SCHEMA, BatchRange, PutJob, put_in_task
from kctl_agent.worker.query.transform import call_transform, check_transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNEVEN_TASKS = 4  # tasks per concurrent task if partitions differ much in size


@dataclass(frozen=True, slots=True)
class PutDone:
    """What `put` stored. `last_timestamps` are Unix times of the partitions' last records, and empty for a table."""

    rows: int
    last_timestamps: Mapping[tuple[str, int], float]


def in_few_tasks(frame: DataFrame, ranges: Mapping[tuple[str, int], BatchRange], least_records: int = 1) -> DataFrame:
    """Coalesces a frame to few tasks, because even an empty task with a Python call takes about 50 ms
    (benchmarks/README.md). Each task has whole Kafka partitions in offset order."""
    sizes = [size for each in ranges.values() if (size := each.end - each.start) > 0]
    tasks = task_count(sizes, frame.sparkSession.sparkContext.defaultParallelism, least_records)
    return frame.coalesce(tasks) if 0 < tasks < len(sizes) else frame


def task_count(sizes: Collection[int], at_a_time: int, least_records: int = 1) -> int:
    """Returns how many tasks read partitions of these sizes: `at_a_time`, or four times as many if sizes differ much.
    There is at most one task per partition, and at most one per `least_records` records."""
    largest, total = max(sizes, default=0), sum(sizes)
    is_uneven = largest > 2 * total / max(len(sizes), 1) and largest > total / (UNEVEN_TASKS * at_a_time)
    most = UNEVEN_TASKS * at_a_time if is_uneven else at_a_time
    return min(len(sizes), most, -(-total // least_records))


class BatchPut(ABC):
    def __init__(self, transform: Callable[[DataFrame], DataFrame], name: str) -> None:
        self._transform = transform
        self.name = name

    def transformed(self, frame: DataFrame) -> DataFrame:
        return call_transform(self._transform, self.name, frame)

    @abstractmethod
    def check(self, source: DataFrame) -> None: ...

    def stream(self, source: DataFrame) -> DataFrame:
        return source

    @abstractmethod
    def give_up(
        self, session: SparkSession, messages: Sequence[Message], planned: BatchRange, errors: Sequence[str]
    ) -> None:
        """Stores `messages` of one partition as dead letters, and moves the partition's stored offset past them. After
        a StorageError, the offset has not moved, but a table of dead letters may contain the messages."""

    @abstractmethod
    def put(self, frame: DataFrame, ranges: Mapping[tuple[str, int], BatchRange], token: str) -> PutDone:
        """Stores a batch of the frame that `stream` returned, and moves stored offsets to the ends of `ranges`. If
        kctl raises an error on an executor, the message begins with `token`. Runs on a callback thread."""


class BlockPut(BatchPut):
    """Stores batches as blocks."""

    def __init__(self, storage: Storage, transform: Callable[[DataFrame], DataFrame], name: str) -> None:
        super().__init__(transform, name)
        self._storage = storage

    def check(self, source: DataFrame) -> None:
        check_transform(self.name, self.stream(source))

    def stream(self, source: DataFrame) -> DataFrame:
        return self.transformed(source)

    def put(self, frame: DataFrame, ranges: Mapping[tuple[str, int], BatchRange], token: str) -> PutDone:
        job = PutJob(self._storage, ranges, token)
        selected = in_few_tasks(frame, ranges).selectExpr(*job.selected())
        rows: list[Any] = map_in_arrow(selected, partial(put_in_task, job), RESULT_SCHEMA).collect()
        reached = {(row.topic, row.partition): row.last + 1 for row in rows}
        holes = [
            Advance(*tp, each.version, begin, each.end)
            for tp, each in ranges.items()
            if each.end > (begin := reached.get(tp, each.start))
        ]
        if holes:
            self._storage.advance_offsets(holes)
        timestamps = {(row.topic, row.partition): row.last_timestamp_ms / 1000 for row in rows}
        return PutDone(sum(row.stored for row in rows), timestamps)

    def give_up(
        self,
        session: SparkSession,  # noqa: ARG002
        messages: Sequence[Message],
        planned: BatchRange,
        errors: Sequence[str],
    ) -> None:
        tp = messages[0].topic, messages[0].partition
        advance = Advance(*tp, planned.version, planned.start, planned.end)
        self._storage.dead_letter(messages, errors, planned.topic_id, advance)
