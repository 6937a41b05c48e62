"""A running query: its batches and their progress."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition

from kctl_agent.message import Message
from kctl_agent.rpc.messages import number_of
from kctl_agent.worker.query.batch_failure import MOVED, OF_RECORD, BatchFailure, failure
from kctl_agent.worker.query.batch_put import BatchPut
from kctl_agent.worker.query.careful_search import CarefulSearch, Ranges
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.put import BatchRange
from kctl_agent.worker.query.unreadable_records import is_readable, other_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

MOST_OTHERS = 10
"""At most this many other records are tried. If one can be read, the failed record counts as unreadable."""
IDLE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished batch. `rows` is the number of stored messages, and `last_timestamps` are in Unix seconds."""

    batch_id: int
    rows: int
    seconds: float
    ends: dict[TopicPartition, int]
    last_timestamps: dict[TopicPartition, float]


class Run:
    """A query from start to end. `positions` are the end offsets of its last finished batch."""

    def __init__(
        self,
        batch_put: BatchPut,
        sources: Mapping[TopicPartition, KafkaSource],
        checkpoint: Path,
        on_batch: Callable[[Batch], None],
    ) -> None:
        self.sources = dict(sources)
        self.checkpoint = checkpoint
        self.positions = {tp: source.start for tp, source in sources.items()}
        self.planned = self.positions  # end offsets of the running batch, else `positions`
        self.gate = threading.Event()
        """If set, no further batch may begin. A callback that waited here would dead-lock with StreamingQuery.stop."""
        self.busy = threading.Lock()
        self.query: Any = None
        self.query_id: str | None = None
        self.last_batch_id = -1
        self.began_at = time.monotonic()
        self.batch_started_at: float | None = None
        self.failure: BatchFailure | None = None
        """Why the last batch failed; Spark's own report is a stack trace of a hundred lines."""
        self._token = uuid.uuid4().hex
        self._batch_put = batch_put
        self._on_batch = on_batch

    def put_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Stores a batch on a Py4J thread. Raises RuntimeError if the batch fails or the query is stopping."""
        with self.busy:
            if self.gate.is_set():
                raise RuntimeError("the partitions were revoked or the query is stopping")
            if batch_id <= self.last_batch_id:  # a query begins each batch once, in order
                raise RuntimeError(f"batch {batch_id} was called after batch {self.last_batch_id}")
            self.last_batch_id = batch_id
            try:
                ends = self._ends(batch_id)
                if any(end < self.positions[tp] for tp, end in ends.items()):
                    self.gate.set()  # the log was truncated: the next query compares it with the stored offset
                    return
                batch = self._put(frame, batch_id, ends)
            except Exception as error:
                self.failure = self.failure_of(error)
                log.debug("batch %d failed", batch_id, exc_info=True)
                raise RuntimeError(self.failure.text) from None
        self._on_batch(batch)

    def _put(self, frame: DataFrame, batch_id: int, ends: dict[TopicPartition, int]) -> Batch:
        started = self.batch_started_at = time.monotonic()
        try:
            self.planned = {**self.positions, **ends}
            done = self._batch_put.put(frame, self._ranges(ends), self._token)
            self.positions = self.planned
        finally:
            self.batch_started_at = None
        timestamps = {TopicPartition(*tp): at for tp, at in done.last_timestamps.items()}
        return Batch(batch_id, done.rows, time.monotonic() - started, ends, timestamps)

    def failure_of(self, error: BaseException) -> BatchFailure:
        return failure(error, self._token)

    def _ranges(self, ends: Mapping[TopicPartition, int]) -> dict[tuple[str, int], BatchRange]:
        return {
            tuple(tp): BatchRange(self.positions[tp], end, self.sources[tp].version, self.sources[tp].topic_id)
            for tp, end in ends.items()
        }

    def _ends(self, batch_id: int) -> dict[TopicPartition, int]:
        lines = (self.checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        offsets: dict[str, dict[str, int]] = json.loads(lines[2])  # after the format's version and the metadata
        return {TopicPartition(t, int(p)): end for t, of_topic in offsets.items() for p, end in of_topic.items()}


class CarefulRun(Run):
    """Stores the ranges of a `CarefulSearch` as batches in a thread. `query` is the run itself, which has
    StreamingQuery's members `isActive`, `exception` and `stop`."""

    def __init__(
        self,
        batch_put: BatchPut,
        sources: Mapping[TopicPartition, KafkaSource],
        checkpoint: Path,
        on_batch: Callable[[Batch], None],
        search: CarefulSearch,
        session: SparkSession,
        pool: str,
        *,
        read: Callable[[Ranges, str], DataFrame],
        unreadable: Callable[[TopicPartition, int], list[Message]],
        log_ends: Callable[[], Mapping[TopicPartition, int]],
        is_own_fault: Callable[[BatchFailure], bool],
    ) -> None:
        """Starts the thread. `unreadable(partition, offset)` returns possible dead letters, from `offset` onwards."""
        super().__init__(batch_put, sources, checkpoint, on_batch)
        self.query = self
        self._search, self._session = search, session
        self._read, self._unreadable = read, unreadable
        self._log_ends, self._is_own_fault = log_ends, is_own_fault
        self._thread = threading.Thread(target=self._work, args=[pool], name="kctl-careful", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self._thread.is_alive()

    def exception(self) -> None:
        """Returns None. See `failure` for the error."""

    def stop(self) -> None:
        self._session.sparkContext.cancelJobsWithTag(self._token)
        self._thread.join()

    def _work(self, pool: str) -> None:
        try:
            # A new thread lacks the main thread's properties, such as the worker's share of an engine.
            self._session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
            self._session.sparkContext.addJobTag(self._token)
            while not self.gate.is_set():
                ranges = self._search.next(self._log_ends(), time.monotonic())
                if ranges:
                    self._store(ranges)
                else:
                    self.gate.wait(IDLE_SECONDS)
        except Exception as error:  # the main thread finds it
            log.debug("the careful query failed", exc_info=True)
            self.failure = self.failure_of(error)

    def _store(self, ranges: Ranges) -> None:
        [(tp, (start, end)), *others] = ranges.items()
        with self.busy:
            why = None if self.gate.is_set() else self._tried(ranges)
            if why is None or self.gate.is_set():  # a cancelled job has failed too
                return
            if others or end - start > 1 or not self._gave_up(tp, start, why):
                self._search.failed(ranges, why.text, time.monotonic())

    def _tried(self, ranges: Ranges) -> BatchFailure | None:
        self.last_batch_id += 1
        frame = self._batch_put.stream(self._read(ranges, self._token))
        try:
            batch = self._put(frame, self.last_batch_id, {tp: end for tp, (_, end) in ranges.items()})
        except Exception as error:
            self.planned, failure = self.positions, self.failure_of(error)
            if not self.gate.is_set() and (failure.code in MOVED or not self._is_own_fault(failure)):
                raise
            return failure
        self._search.done(ranges)
        self._on_batch(batch)
        return None

    def _gave_up(self, tp: TopicPartition, offset: int, why: BatchFailure) -> bool:
        """Makes dead letters unless an outage may have caused the failure. Returns False if a retry is needed."""
        messages = self._unreadable(tp, offset) if why.code in OF_RECORD else []
        if not messages:
            return False
        if is_readable(messages[0].timestamp):
            if not self._can_read_another(tp):  # this may be an outage
                return False
            again = self._tried({tp: (offset, offset + 1)})
            if again is None or self.gate.is_set():
                return True
        overflow = "TimestampOverflow: {} ms is beyond Spark's range"
        errors = [why.text if is_readable(each.timestamp) else overflow.format(each.timestamp) for each in messages]
        source, end = self.sources[tp], messages[-1].offset + 1
        planned = BatchRange(offset, end, source.version, source.topic_id)
        self._batch_put.give_up(self._session, messages, planned, errors)
        self.positions = self.planned = {**self.positions, tp: end}
        self._search.gave_up(tp, end, time.monotonic())
        self._on_batch(Batch(self.last_batch_id, 0, 0.0, {tp: end}, {}))
        count = number_of(len(messages), "record")
        log.warning("%s from %s-%d offset %d on became dead letters: %s", count, *tp, offset, errors[0])
        return True

    def _can_read_another(self, tp: TopicPartition) -> bool:
        from kctl_agent.worker.query.committed_files import CountedRows  # and PySpark, too slow for a start

        known = self._search.readable
        others = chain([known] if known else [], other_offsets(tp, self.positions.items()))
        for other, at in islice(others, MOST_OTHERS):
            if self.gate.is_set():
                return False
            counted = CountedRows(self._read({other: (at, at + 1)}, self._token))
            try:
                self._batch_put.transformed(counted.rows).write.format("noop").mode("overwrite").save()
                if counted.count:
                    self._search.readable = other, at
                    return True
            except Exception:
                log.debug("%s-%d offset %d cannot be read, either", *other, at, exc_info=True)
        return False


def stop_queries(queries: Mapping[Path, Any], seconds: float) -> None:
    """Stops each query in its own thread. Abandons queries that have not stopped after `seconds`."""
    threads = [threading.Thread(target=_stop, args=each, name="kctl-stop", daemon=True) for each in queries.items()]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    if late := sum(thread.is_alive() for thread in threads):
        log.warning("%s not ended within %.0f s", number_of(late, "query has", "queries have"), seconds)


def _stop(checkpoint: Path, query: Any) -> None:
    try:
        query.stop()
    except Exception as error:  # a stream thread that does not end in time, or a dead JVM
        log.warning("stopping the query: %s", failure(error, "-").text)
    shutil.rmtree(checkpoint, ignore_errors=True)
