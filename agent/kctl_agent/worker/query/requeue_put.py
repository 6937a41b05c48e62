"""Requeues dead letters of a table in a batch of their own."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.chunk import Binding
from kctl_agent.storage.lake.dead_letters.requeue import PutBack, RequeueBatch, Requeues
from kctl_agent.storage.lake.dead_letters.selection import NUMBER, READING, TRIES
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta.files import Written
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.limits import why_full
from kctl_agent.worker.query.lake_put import LakePut, write
from kctl_agent.worker.query.marked_rows import all_messages
from kctl_agent.worker.query.typed_rows import TypedRows

SCHEMA = (
    "cluster string, `group` string, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, key binary, value binary, headers array<struct<key: string, value: binary>>, "
    f"failed_at timestamp, {TRIES} int, {NUMBER} bigint, {READING} string"
)
"""A record's columns have the types of Spark's source `kafka`."""
WHOLE = {"ignoreMissingFiles": False, "ignoreCorruptFiles": False}
"""Spark may skip no file, whatever the session's options: skipped rows would be removed without being requeued."""
COPY = "_kctl_copy"
GLOB = re.compile(r"([{}\[\]*?\\])")


@dataclass(eq=False)
class RequeuePut:
    """Transforms requeued dead letters again and commits the result. Only one thread at a time may use it."""

    _storage: LakeStorage
    _transform: Callable[[DataFrame], DataFrame]
    _name: str
    _group: str
    _worker: str
    _typed: TypedRows | None = None
    _requeues: Requeues | None = None

    def put_next(self, spark: SparkSession) -> PutBack | None:
        batch = self._of_cluster().next()
        if batch is None:
            return None
        try:
            if (why := why_full(replace(self._storage.stats(), dead=None))) is not None:
                raise StorageUnusable(why)
            # A new thread lacks the main thread's properties, such as the worker's share of an engine.
            spark.sparkContext.setLocalProperty("spark.scheduler.pool", self._worker)
            put = LakePut(self._storage, self._transform, self._name, self._typed)
            for messages in self._messages(spark, batch):
                self._write(put, messages, batch)
        except BaseException:
            batch.discard()
            raise
        return batch.commit()

    def _of_cluster(self) -> Requeues:
        owner = Binding(self._group, self._storage.owner.cluster_id)
        if self._requeues is None or self._requeues.owner != owner:
            self._requeues = DeadLetterTable(self._storage, self._group).requeues
        return self._requeues

    def _messages(self, spark: SparkSession, batch: RequeueBatch) -> Iterator[DataFrame]:
        if not batch.messages:
            return
        reader = spark.read.schema(SCHEMA).options(**WHOLE)
        every, owner = reader.parquet(*map(_escaped, batch.files)), batch.requeues.owner
        every = every.where(
            (f.col("group") == f.lit(owner.group))
            & f.col("cluster").eqNullSafe(f.lit(owner.cluster_id))
            & (f.col(NUMBER) > batch.state.stored)
            & (f.col(NUMBER) <= batch.state.requested)
        )
        if (found := every.count()) != batch.messages:
            raise StorageUnusable(
                f"Spark finds {found} of the {number_of(batch.messages, 'dead letter')} to be requeued in "
                f"{self._storage.dead_letter_table().folder}: nothing was changed"
            )
        if batch.copies == 1:
            yield every
            return
        # A mark has only coordinates, so each frame has them once. After a seek or in a recreated topic, they repeat.
        same = Window.partitionBy("topic", "partition", "offset").orderBy("failed_at", f.xxhash64("key", "value"))
        numbered = every.withColumn(COPY, f.row_number().over(same))
        for copy in range(1, batch.copies + 1):
            yield numbered.where(f.col(COPY) == copy).drop(COPY)

    def _write(self, put: LakePut, messages: DataFrame, batch: RequeueBatch) -> None:
        rows, marked = put.write_rows(messages, batch.folder)
        batch.rows = (batch.rows or Written()) + rows
        if marked:
            again = f.col("cluster"), f.col("group"), f.col(TRIES) + 1, f.col(READING)
            kept = all_messages(marked, messages, *again)
            batch.kept = (batch.kept or Written()) + write(kept, batch.kept_folder)
            for each in marked:
                each.check()


def _escaped(file: Folder) -> str:
    # Spark treats a path as a pattern.
    return GLOB.sub(r"\\\1", file.spark_uri)
