"""Without a JVM: frames pass records to the task in this process, or fail at bad records."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import CorruptRecordError

from kctl_agent.message import Message
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.worker.query import batch_put, committed_files, unreadable_records
from kctl_agent.worker.query.batch_failure import BatchFailure
from kctl_agent.worker.query.batch_put import BlockPut
from kctl_agent.worker.query.careful_search import CarefulSearch, Ranges
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.run import Batch, CarefulRun
from kctl_agent.worker.settings import KafkaSettings
from tests.conftest import eventually
from tests.scratch_storage import ScratchStorage
from tests.unit.worker.query.frames import Frame, arrow

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
END = 20
NANOSECONDS = 1_764_171_234_567_890_123


class RangeFrame(Frame):
    """The records of ranges, and a writer that stores no rows."""

    def __init__(self, ranges: Ranges, fails: Callable[[], bool]) -> None:
        super().__init__(
            *(arrow(offsets := list(range(*each)), None, [tp.partition] * len(offsets)) for tp, each in ranges.items())
        )
        self._fails = fails

    def mapped(self, task: Any, schema: str) -> Any:
        self.save()
        return super().mapped(task, schema)

    def save(self) -> None:
        if self._fails():
            raise ValueError("no number")

    @property
    def write(self) -> RangeFrame:
        return self

    def mode(self, _: str) -> RangeFrame:
        return self

    format = mode


class Reading:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self.storage = ScratchStorage(block_messages=3)
        self.storage.init_offsets([StoredOffset("t", 0, None, 0), StoredOffset("t", 1, None, 0)])
        self.bad: set[tuple[TopicPartition, int]] = set()
        self.is_away = False
        self.reads = 0
        self.batches: list[Batch] = []
        self.timestamp: Callable[[int], int] = lambda offset: offset * 10
        self.is_own_fault = True
        sources = {tp: KafkaSource(0, None, 1) for tp in (A, B)}
        self.search = CarefulSearch(dict.fromkeys((A, B), 0), 1000, 0.0, time.monotonic())
        put = BlockPut(self.storage, lambda frame: frame, "")
        self._parts = put, sources, folder, self.batches.append, self.search
        self.unreadable = self._unreadable
        self.gives_up = False

    def begin(self) -> None:
        context = SimpleNamespace(
            setLocalProperty=lambda *_: None, addJobTag=lambda _: None, cancelJobsWithTag=lambda _: None
        )
        session: Any = SimpleNamespace(sparkContext=context)
        read: Any = self._read
        self.run = CarefulRun(
            *self._parts,
            session,
            "worker-0",
            read=read,
            unreadable=self.unreadable,
            log_ends=lambda: {A: END, B: END},
            is_own_fault=lambda _: self.is_own_fault,
        )
        self._stack.callback(self.run.stop)
        self._stack.callback(self.run.gate.set)

    def _read(self, ranges: Ranges, _: str) -> RangeFrame:
        self.reads += 1
        is_bad = any(tp in ranges and ranges[tp][0] <= at < ranges[tp][1] for tp, at in self.bad)
        return RangeFrame(ranges, lambda: self.is_away or is_bad)

    def _unreadable(self, tp: TopicPartition, offset: int) -> list[Message]:
        last = END if self.timestamp(offset) == NANOSECONDS else offset + 1
        found = [at for at in range(offset, last) if (tp, at) in self.bad or self.is_away]
        messages = [Message(tp.topic, tp.partition, at, None, b"bad", self.timestamp(at)) for at in found]
        return messages if self.gives_up else []

    @property
    def next(self) -> tuple[int, int]:
        stored = self.storage.stored_offsets([("t", 0), ("t", 1)])
        return stored["t", 0].next, stored["t", 1].next

    @property
    def dead(self) -> list[tuple[int, int, str]]:
        return [(each.block.partition, each.offset, each.error) for each in self.storage.dead()]


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reading]:
    monkeypatch.setattr(batch_put, "map_in_arrow", lambda frame, task, schema: frame.mapped(task, schema))
    monkeypatch.setattr(committed_files, "CountedRows", lambda frame: SimpleNamespace(rows=frame, count=1))
    with ExitStack() as stack:
        yield Reading(tmp_path, stack)


def test_what_is_good_is_stored_and_reported_and_the_first_bad_record_is_named(reading: Reading) -> None:
    reading.bad = {(A, 7), (A, 9)}
    reading.begin()

    eventually(lambda: reading.search.unreadable(), what="it is found")
    assert reading.next == (7, END)
    assert {tp: each.offset for tp, each in reading.search.unreadable().items()} == {A: 7}
    assert reading.run.positions == {A: 7, B: END}
    eventually(lambda: sum(batch.rows for batch in reading.batches) == 7 + END, what="each batch is counted")
    assert reading.dead == []


def test_where_something_outside_is_away_the_query_ends_with_the_cause(reading: Reading) -> None:
    reading.is_own_fault, reading.is_away = False, True
    reading.begin()

    eventually(lambda: not reading.run.isActive, what="it ends")
    assert reading.run.failure == BatchFailure("no number")
    assert reading.search.unreadable() == {}


def test_a_bad_record_becomes_a_dead_letter_while_others_can_be_read_and_reading_goes_on(reading: Reading) -> None:
    reading.gives_up, reading.bad = True, {(A, 7), (A, 8), (A, 11), (B, 0)}
    reading.begin()

    eventually(lambda: reading.next == (END, END), what="all is stored, or a dead letter")
    why = "no number"
    assert sorted(reading.dead) == [(0, 7, why), (0, 8, why), (0, 11, why), (1, 0, why)]
    eventually(lambda: sum(batch.rows for batch in reading.batches) == 2 * END - 4, what="each batch is counted")
    assert reading.search.unreadable() == {}


@pytest.mark.shows("a record counts as unreadable only if another one can be read")
def test_where_no_record_can_be_read_there_is_no_dead_letter(reading: Reading) -> None:
    reading.gives_up = reading.is_away = True
    reading.begin()

    eventually(lambda: len(reading.search.unreadable()) == 2, what="both are isolated")
    assert (reading.next, reading.dead) == ((0, 0), [])

    reading.is_away = False
    eventually(lambda: reading.next == (END, END), what="all is read")
    assert reading.dead == []


def test_a_record_that_is_read_at_the_second_try_is_stored(reading: Reading) -> None:
    reading.gives_up, reading.bad = True, {(A, 7)}
    given_up = reading.unreadable

    def heals(tp: TopicPartition, offset: int) -> list[Message]:
        found = given_up(tp, offset)
        reading.bad.clear()
        return found

    reading.unreadable = heals
    reading.begin()

    eventually(lambda: reading.next == (END, END), what="all is stored")
    assert reading.dead == []
    eventually(lambda: sum(batch.rows for batch in reading.batches) == 2 * END, what="each batch is counted")


def test_records_with_timestamps_beyond_sparks_range_become_dead_letters_at_once(reading: Reading) -> None:
    reading.gives_up, reading.bad = True, {(A, at) for at in range(3, END)}
    reading.timestamp = lambda _: NANOSECONDS
    reading.begin()

    eventually(lambda: reading.next == (END, END), what="all is stored, or a dead letter")
    why = f"TimestampOverflow: {NANOSECONDS} ms is beyond Spark's range"
    assert reading.dead == [(0, at, why) for at in range(3, END)]
    assert [each.messages()[0].timestamp for each in reading.storage.dead()] == [NANOSECONDS] * (END - 3)


@pytest.mark.parametrize(
    "error", [CorruptRecordError("no UTF-8"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), zlib.error()]
)
def test_a_record_that_kafka_python_cannot_parse_is_no_dead_letter(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its partition stays isolated; other partitions continue."""

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(unreadable_records, "_records", failing)
    kafka = KafkaSettings("localhost:1", "g", ("t",), "earliest", "range", 6, 1, "read_committed", None)

    assert unreadable_records.unreadable_records(kafka, TopicPartition("t", 0), 7, is_wanted=True) == []

    assert "t-0 offset 7 cannot be read" in caplog.text
