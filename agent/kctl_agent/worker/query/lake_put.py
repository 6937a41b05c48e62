"""The driver's side of a batch that becomes files of a table: they are written by Spark's own Parquet writer in the
executors, so that no value passes through Python."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kctl_agent.messages import number_of
from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.storage.base import Advance, TopicPartition
from kctl_agent.storage.lake import LakeBatch, LakeStorage
from kctl_agent.storage.lake.dead_letters import DeadLetterTable
from kctl_agent.storage.lake.files import DataFile
from kctl_agent.storage.lake.table import TableRefused
from kctl_agent.worker.query.batch_put import BatchPut, BatchRange, PutDone
from kctl_agent.worker.query.marked_rows import ERROR, MarkedRows, check_marks, is_marking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["COLUMNS", "LakePut"]

log = logging.getLogger(__name__)

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
"""What a transform is given, and what the table has without one."""


class LakePut(BatchPut):
    """The transform is a function of a batch. Messages whose rows it marks as not readable become dead letters."""

    def __init__(self, storage: LakeStorage, transform: Callable[[DataFrame], DataFrame], name: str) -> None:
        super().__init__(transform, name)
        self._storage = storage
        self._schema: str | None = None
        """That the table was found to take."""

    def check(self, source: DataFrame) -> None:
        empty = source.sparkSession.createDataFrame([], source.schema)
        try:
            made = self._transformed(empty)
            if is_marking(made):
                check_marks(self.name, made)
                made = made.drop(ERROR)
            self._fit(made)
        except TableRefused as error:
            raise BootstrapError(str(error)) from error

    def stream(self, source: DataFrame) -> DataFrame:
        return source

    def put(self, frame: DataFrame, ranges: Mapping[tuple[str, int], BatchRange], token: str) -> PutDone:  # noqa: ARG002
        batch = self._storage.begin(
            [Advance(*tp, each.plan.version, each.plan.start, each.end) for tp, each in ranges.items()]
        )
        try:
            below = {tp: at for tp, at in batch.below.items() if at > ranges[tp].plan.start}
            source = _not_stored(frame, below)
            rows = self._transformed(source)
            marked = MarkedRows(rows) if is_marking(rows) else None
            if marked is not None:
                rows = marked.others
            self._fit(rows)
            _write(rows, batch, self._storage.partition_by)
            if marked is not None and marked.count:
                self._give_up(marked, source, batch)
        except BaseException:
            batch.discard()
            raise
        files = batch.commit()
        return PutDone(sum(file.rows for file in files), {} if self.name else _last_timestamps(files))

    def _give_up(self, marked: MarkedRows, source: DataFrame, batch: LakeBatch) -> None:
        """The messages of marked rows become dead letters."""
        owner = self._storage.owner
        table = DeadLetterTable(self._storage, owner.group)
        messages = marked.messages(source, owner)
        dead_letters = table.begin(batch, messages.schema.json())
        try:
            _write(_not_stored(messages, dead_letters.below), dead_letters)
            marked.check()
        except BaseException:
            dead_letters.discard()
            raise
        count = sum(file.rows for file in dead_letters.commit())
        log.warning("%s became dead letters: %s", number_of(count, "message"), table.identity)

    def _transformed(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import DataFrame as SparkDataFrame

        made = self.transform(frame.select(*COLUMNS))
        if not isinstance(made, SparkDataFrame) or made.isStreaming:
            kind = "a stream" if isinstance(made, SparkDataFrame) else type(made).__name__
            raise BootstrapError(
                f"the transform {self.name} returns {kind}; with storage.mode lake it is given the rows of one batch "
                "and returns a DataFrame made of them: what needs state over batches is no transform"
            )
        return made

    def _fit(self, rows: DataFrame) -> None:
        """Raises TableRefused, StorageUnusable."""
        schema = rows.schema.json()
        if schema != self._schema:
            self._storage.fit(schema)
            self._schema = schema


def _not_stored(rows: DataFrame, below: Mapping[TopicPartition, int]) -> DataFrame:
    """Without those of offsets that are stored already."""
    if not below:
        return rows
    # Kafka's names of topics have nothing that SQL would need quoted.
    return rows.where(
        " and ".join(
            f"not (topic = '{topic}' and partition = {partition} and offset < {at})"
            for (topic, partition), at in sorted(below.items())
        )
    )


def _write(rows: DataFrame, batch: LakeBatch, partition_by: Sequence[str] = ()) -> None:
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    (
        rows.write.partitionBy(*partition_by)
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .parquet(batch.folder.as_uri())
    )


def _last_timestamps(files: Sequence[DataFile]) -> dict[TopicPartition, float]:
    """Of files of the default columns, each of which holds records of one partition."""
    found: dict[TopicPartition, float] = {}
    for file in files:
        values = {**file.partition_values, **file.greatest}
        topic, partition, at = values.get("topic"), values.get("partition"), values.get("timestamp")
        is_one = all(file.least.get(name) == file.greatest.get(name) for name in ("topic", "partition"))
        if is_one and topic is not None and partition is not None and isinstance(at, datetime):
            tp = (str(topic), int(partition))
            found[tp] = max(found.get(tp, 0.0), at.replace(tzinfo=at.tzinfo or UTC).timestamp())
    return found
