"""The part of the worker that runs in an executor: Arrow batches of one Kafka partition into the storage.

One task per Kafka partition, records in offset order (Spark's Kafka source makes its tasks so). Memory is bounded by
two Arrow batches, one being stored and one being read, never by the Spark batch.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kctl_agent.errors import StorageError
from kctl_agent.storage.base import Chunk, Storage
from kctl_agent.storage.block import BinaryColumn, Columns
from kctl_agent.worker.query.batch_failure import TaskFailed
from kctl_agent.worker.query.batch_put import PartitionPlan

__all__ = ["COLUMNS", "RESULT_SCHEMA", "BadOrder", "PutJob", "put_in_task", "put_partition"]

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What a user's transform must keep."""

HEADERS = (
    "cast(to_json(cast(headers as array<struct<k:string,v:binary>>), map('ignoreNullFields', 'true')) as binary)"
    " as headers"
)
"""As JSON: an array of structs in Arrow made the whole put four times slower, even with every one null. Renamed by a
cast and not by `transform`, with which a batch took an eighth longer, headers or not (benchmarks/README.md)."""

RESULT_SCHEMA = (
    "topic string, partition int, first long, last long, stored long, skipped long, bytes long, last_timestamp_ms long"
)
KEEP = "the transform must not change topic or partition"


class BadOrder(StorageError):
    """A task whose records are not those of one Kafka partition in offset order: the transform changed or moved
    them."""

    code = "bad_order"


@dataclass(frozen=True, slots=True)
class PutJob:
    """Everything a task needs; pickled with it."""

    storage: Storage
    plans: Mapping[tuple[str, int], PartitionPlan]
    token: str = ""
    """By which the driver knows what its tasks report (`batch_failure`)."""

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.plans})

    def selected(self) -> list[str]:
        """What is handed to Python, as SQL expressions. A topic goes as its place in `topics`: with its name in each
        row Spark took 3 to 8 % longer (benchmarks/README.md)."""
        # Kafka's names of topics have nothing that SQL would need quoted.
        places = "".join(f" when '{topic}' then {place}" for place, topic in enumerate(self.topics))
        timestamp = "unix_millis(timestamp) as timestamp_ms"
        return [f"case topic{places} end as topic", "partition", "offset", timestamp, "key", "value", HEADERS]


def put_in_task(job: PutJob, batches: Iterator[Any]) -> Iterator[Any]:
    """`put_partition`, whose errors the driver is to understand. Raises TaskFailed."""
    try:
        yield from put_partition(job, batches)
    except StorageError as error:
        raise TaskFailed(job.token, error) from None


def put_partition(job: PutJob, batches: Iterator[Any]) -> Iterator[Any]:
    """Store one task's Arrow record batches (columns `PutJob.selected`); yields one row of `RESULT_SCHEMA`, or none.

    Raises:
        BadOrder, GapRefused, StoredOffsetMoved: nothing of that portion was written; the Spark batch fails.
        StorageUnusable: the same, and it may work later.
    """
    import pyarrow as pa

    where: tuple[str, int] | None = None
    begin = first = last = last_timestamp = -1
    stored = skipped = size = 0
    with job.storage.writer() as writer:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            here = _coordinates(batch, job)
            if where is None:
                where, begin = here, job.plans[here].start
            elif here != where:
                raise BadOrder(f"records of {where} and {here} came in one task; the transform must not move records")
            columns = _columns(batch)
            if int(columns.offsets[0]) <= last or (np.diff(columns.offsets) <= 0).any():
                raise BadOrder(f"records of {here} came out of offset order; the transform must not sort records")
            plan = job.plans[here]
            if first < 0:
                first = int(columns.offsets[0])
            for portion in writer.portions(columns):
                last = int(portion.offsets[-1])
                put = writer.put(Chunk(*here, plan.topic_id, begin, last + 1, plan.version, portion))
                begin = last + 1
                stored, skipped, size = stored + put.stored, skipped + put.skipped, size + put.bytes
            last_timestamp = int(columns.timestamps[-1])
    _spare_collections()
    if where is not None:
        topic, partition = where
        numbers = [first, last, stored, skipped, size, last_timestamp]
        columns_of_one = [_text(topic), _number(np.int32(partition)), *(_number(np.int64(value)) for value in numbers)]
        yield pa.RecordBatch.from_arrays(columns_of_one, [field.split()[0] for field in RESULT_SCHEMA.split(", ")])


def _number(value: np.int32 | np.int64) -> Any:
    """An Arrow array of this value alone. Out of its buffer: `pa.array` would import pandas, if it is installed, for
    most of a second in every Python of the executors."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.from_numpy_dtype(value.dtype), 1, [None, pa.py_buffer(value.tobytes())])


def _text(value: str) -> Any:
    """As `_number`, of a text."""
    import pyarrow as pa

    data = value.encode()
    ends = np.array([0, len(data)], np.int32).tobytes()
    return pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


@cache
def _spare_collections() -> None:
    """Take what there is now out of the reach of the garbage collector; once per process.

    PySpark's daemon collects after each task (pyspark/daemon.py) and so walks through all that ever was imported: 50 to
    85 ms of a processor that another task needs (benchmarks/README.md).
    """
    gc.collect()
    gc.freeze()


def _coordinates(batch: Any, job: PutJob) -> tuple[str, int]:
    """Topic and partition of an Arrow batch, of which all records must have the same."""
    places, partitions = batch.column(0), batch.column(1)
    if places.null_count:
        raise BadOrder(f"there are records of other topics than {', '.join(job.topics)}; {KEEP}")
    place, partition = places[0].as_py(), partitions[0].as_py()
    if (np.from_dlpack(places) != place).any() or (np.from_dlpack(partitions) != partition).any():
        raise BadOrder("records of several partitions came in one Arrow batch; the transform must not move records")
    topic = job.topics[place]
    if (topic, partition) not in job.plans:
        raise BadOrder(f"there are records of {topic}-{partition}, which is not read here; {KEEP}")
    return topic, partition


def _columns(batch: Any) -> Columns:
    offsets: Any = np.from_dlpack(batch.column(2))
    timestamps: Any = np.from_dlpack(batch.column(3))
    return Columns(offsets, timestamps, *(_binary(batch.column(i)) for i in (4, 5, 6)))


def _binary(array: Any) -> BinaryColumn | None:
    """A binary Arrow array as lengths and joined bytes, from its buffers; None when every value is null."""
    import pyarrow as pa

    if array.null_count == len(array):
        return None
    if pa.types.is_large_binary(array.type):
        array = array.cast(pa.binary())
    valid, ends, data = array.buffers()
    edges = np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
    lengths = np.diff(edges)
    if array.null_count:
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=array.offset + len(array), bitorder="little")
        nulls = bits[array.offset :] == 0
        if lengths[nulls].any():  # the format allows bytes behind a null; ours does not
            return _from_values(array.to_pylist())
        lengths = np.where(nulls, np.int32(-1), lengths)
    return BinaryColumn(lengths, memoryview(data)[int(edges[0]) : int(edges[-1])] if data is not None else b"")


def _from_values(values: list[bytes | None]) -> BinaryColumn:
    lengths = np.array([-1 if value is None else len(value) for value in values], np.int32)
    return BinaryColumn(lengths, b"".join(value or b"" for value in values))
