"""The driver's side of a batch that is put in blocks, by tasks that read several partitions each (`put`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kctl_agent.message import Message
from kctl_agent.spark.without_pandas import map_in_arrow
from kctl_agent.storage.base import Storage
from kctl_agent.storage.chunk import Advance
from kctl_agent.worker.query.batch_put import BatchPut, BatchRange, PutDone, in_few_tasks
from kctl_agent.worker.query.put import RESULT_SCHEMA, PutJob, put_in_task
from kctl_agent.worker.query.transform import check_transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class BlockPut(BatchPut):
    """The transform is part of the query and leaves each record in its task."""

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
