"""The executor's side of a put, which writes Arrow batches into the storage. At most two batches are in memory."""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kctl_agent.errors import StorageError
from kctl_agent.storage.base import Storage
from kctl_agent.storage.block import BinaryColumn, Columns, binary_column
from kctl_agent.storage.chunk import Chunk, Put, TopicPartition
from kctl_agent.worker.query.batch_failure import TaskFailed

HEADERS = (
    "cast(to_json(cast(headers as array<struct<k:string,v:binary>>), map('ignoreNullFields', 'true')) as binary)"
    " as headers"
)
"""JSON, because an array of structs in Arrow made the whole put four times slower, even if every one was null. Renamed
by a cast, because with `transform` a batch took an eighth longer (benchmarks/README.md)."""

RESULT_SCHEMA = "topic string, partition int, last long, stored long, last_timestamp_ms long"
KEEP = "the transform must not change topic or partition"
MOVED = "the transform must not move records"
SORTED = "the transform must not sort records"


@dataclass(frozen=True, slots=True)
class BatchRange:
    """A batch's offsets in one partition. `end` is exclusive. `version` is the expected `StoredOffset.version`."""

    start: int
    end: int
    version: int
    topic_id: str | None


class BadOrder(StorageError, code="bad_order"):
    """The transform has moved, sorted or repeated records, or changed their topic or partition."""


@dataclass(frozen=True)
class PutJob:
    storage: Storage
    ranges: Mapping[TopicPartition, BatchRange]
    token: str = ""

    @cached_property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.ranges})

    def selected(self) -> list[str]:
        """Returns the put's columns as SQL. The column `topic` is an index of `topics`."""
        # With names, Spark took 3 to 8 % longer (benchmarks/README.md). Kafka's topic names need no quoting in SQL.
        places = "".join(f" when '{topic}' then {place}" for place, topic in enumerate(self.topics))
        timestamp = "unix_millis(timestamp) as timestamp_ms"
        return [f"case topic{places} end as topic", "partition", "offset", timestamp, "key", "value", HEADERS]


def put_in_task(job: PutJob, batches: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from put_partitions(job, batches)
    except StorageError as error:
        raise TaskFailed(job.token, error) from None


@dataclass(slots=True)
class _Progress:
    planned: int
    last: int = -1
    stored: int = 0
    last_timestamp: int = -1

    def put(self, chunk: Chunk, put: Put) -> None:
        self.last = int(chunk.columns.offsets[-1])
        self.last_timestamp = int(chunk.columns.timestamps[-1])
        self.stored += put.stored


@dataclass(slots=True)
class _Task:
    job: PutJob
    progress: dict[TopicPartition, _Progress] = field(default_factory=dict)
    current: TopicPartition | None = None

    def chunk(self, tp: TopicPartition, columns: Columns) -> Chunk:
        planned = self.job.ranges[tp]
        name = f"{tp[0]}-{tp[1]}"
        if tp != self.current and tp in self.progress:
            raise BadOrder(f"records of {name} came before and after those of another partition; {MOVED}")
        self.current = tp
        progress = self.progress.setdefault(tp, _Progress(planned.start))
        first, end = int(columns.offsets[0]), int(columns.offsets[-1]) + 1
        if (first < progress.planned and progress.planned > planned.start) or (np.diff(columns.offsets) <= 0).any():
            raise BadOrder(f"records of {name} came out of offset order; {SORTED}")
        begin, progress.planned = progress.planned, end
        return Chunk(*tp, planned.topic_id, begin, end, planned.version, columns)


def put_partitions(job: PutJob, batches: Iterator[Any]) -> Iterator[Any]:
    """Stores one task's Arrow record batches. Yields one Arrow batch with a row of `RESULT_SCHEMA` per partition.
    Raises BadOrder and the errors of `Writer.put_all`. Records stored before the error remain stored."""
    task = _Task(job)
    with job.storage.writer() as writer:
        for batch in batches:
            if batch.num_rows == 0:
                continue
            for portion in writer.portions([task.chunk(tp, columns) for tp, columns in _runs(batch, job)]):
                for chunk, put in zip(portion, writer.put_all(portion), strict=True):
                    task.progress[chunk.tp].put(chunk, put)
    _spare_collections()
    if task.progress:
        yield _result(task.progress)


def _result(progress: Mapping[TopicPartition, _Progress]) -> Any:
    import pyarrow as pa

    # `pa.array` would import pandas, which takes most of a second.
    topics = [topic.encode() for topic, _ in progress]
    ends = np.cumsum([0, *map(len, topics)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(topics))]
    numbers = np.array([(each.last, each.stored, each.last_timestamp) for each in progress.values()])
    columns = [
        pa.Array.from_buffers(pa.string(), len(topics), buffers),
        _numbers(np.array([partition for _, partition in progress], np.int32)),
        *(_numbers(column.astype(np.int64)) for column in numbers.T),
    ]
    return pa.RecordBatch.from_arrays(columns, [name.split()[0] for name in RESULT_SCHEMA.split(", ")])


def _numbers(values: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values.tobytes())])


@cache
def _spare_collections() -> None:
    # Saves 50 to 85 ms of CPU time in PySpark's garbage collection after each task (benchmarks/README.md).
    gc.collect()
    gc.freeze()


def _run_starts(*columns: NDArray[Any]) -> NDArray[np.int64]:
    changes = [np.flatnonzero(np.diff(each)) + 1 for each in columns]
    return np.unique(np.concatenate([np.zeros(1, np.int64), *changes]))


def _runs(batch: Any, job: PutJob) -> Iterator[tuple[TopicPartition, Columns]]:
    places, partitions = batch.column(0), batch.column(1)
    if places.null_count:
        raise BadOrder(f"there are records of other topics than {', '.join(job.topics)}; {KEEP}")
    place_of, partition_of = np.from_dlpack(places), np.from_dlpack(partitions)
    edges = [*_run_starts(place_of, partition_of).tolist(), batch.num_rows]
    columns = _columns(batch)
    parts = columns.cut(edges) if len(edges) > 2 else iter((columns,))
    for (begin, _), part in zip(pairwise(edges), parts, strict=True):
        tp = job.topics[int(place_of[begin])], int(partition_of[begin])
        if tp not in job.ranges:
            raise BadOrder(f"there are records of {tp[0]}-{tp[1]}, which this worker does not read; {KEEP}")
        yield tp, part


def _columns(batch: Any) -> Columns:
    offsets: Any = np.from_dlpack(batch.column(2))
    timestamps: Any = np.from_dlpack(batch.column(3))
    return Columns(offsets, timestamps, *(_binary(batch.column(i)) for i in (4, 5, 6)))


def _binary(array: Any) -> BinaryColumn | None:
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
        if lengths[nulls].any():  # Arrow allows bytes for a null; our format does not
            return binary_column(array.to_pylist())
        lengths = np.where(nulls, np.int32(-1), lengths)
    return BinaryColumn(lengths, memoryview(data)[int(edges[0]) : int(edges[-1])] if data is not None else b"")
