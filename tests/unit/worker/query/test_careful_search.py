from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.errors import CorruptRecordError

from kctl_agent.message import Message
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.worker.query import batch_put, committed_files, unreadable_records
from kctl_agent.worker.query.batch_failure import BatchFailure
from kctl_agent.worker.query.batch_put import BlockPut
from kctl_agent.worker.query.careful_search import HEALTHY_SECONDS, JOIN_SECONDS, CarefulSearch, Ranges
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.run import Batch, CarefulRun
from kctl_agent.worker.settings import KafkaSettings
from tests.conftest import eventually, raising
from tests.scratch_storage import ScratchStorage
from tests.unit.worker.query.frames import Frame, arrow

MOST = 10_000


class Reads:
    """Partitions with records at all offsets up to their ends. The records in `bad` cannot be read."""

    def __init__(
        self, ends: list[int], bad: set[tuple[int, int]], stores: float = 0.3, fails: float = 0.9, wait: float = 0.0
    ) -> None:
        self.partitions = [TopicPartition("t", number) for number in range(len(ends))]
        self.ends = dict(zip(self.partitions, ends, strict=True))
        self.bad = {(self.partitions[number], offset) for number, offset in bad}
        self.stores, self.fails, self.gives_up = stores, fails, False
        self.now = 0.0
        self.stored = dict.fromkeys(self.partitions, 0)
        self.failed = self.batches = 0
        self.search = CarefulSearch(self.stored, MOST, wait, self.now)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            ranges = self.search.next(self.ends, self.now)
            if not ranges:
                self.now += 0.2
                continue
            assert sum(end - start for start, end in ranges.values()) <= max(MOST, len(ranges))
            if self._is_bad(ranges):
                self.now, self.failed = self.now + self.fails, self.failed + 1
                [(tp, (start, end)), *others] = ranges.items()
                if self.gives_up and not others and end - start == 1:
                    self.stored[tp] = end
                    self.search.gave_up(tp, end, self.now)
                else:
                    self.search.failed(ranges, "no number", self.now)
            else:
                self.now, self.batches = self.now + self.stores, self.batches + 1
                for tp, (start, end) in ranges.items():
                    assert start == self.stored[tp] < end <= self.ends[tp]
                    self.stored[tp] = end
                self.search.done(ranges)

    def _is_bad(self, ranges: Ranges) -> bool:
        return any(tp in ranges and ranges[tp][0] <= offset < ranges[tp][1] for tp, offset in self.bad)

    @property
    def first_bad(self) -> dict[TopicPartition, int]:
        return dict(sorted(self.bad, reverse=True))

    @property
    def good(self) -> frozenset[TopicPartition]:
        return frozenset(self.partitions) - self.first_bad.keys()


@pytest.mark.parametrize(("partitions", "bad"), [(40, 8), (40, 10), (40, 20), (100, 12), (400, 8)])
def test_good_partitions_are_read_within_90_seconds_despite_slow_failures(partitions: int, bad: int) -> None:
    step = partitions // bad
    reads = Reads([12] * partitions, {(number * step, 7) for number in range(bad)}, stores=0.5, fails=1.5)
    reads.run(90)

    assert all(reads.stored[tp] == 12 for tp in reads.good)
    assert reads.search.cleared(reads.now) == reads.good


@pytest.mark.parametrize("offset", [10, 4321, 4999])
def test_a_range_that_failed_is_not_read_whole_again(offset: int) -> None:
    reads = Reads([5000] * 20, {(number, offset) for number in range(20)})
    while len(reads.search.unreadable()) < 20:
        reads.run(1)

    assert reads.failed + reads.batches <= 20 * (5 * 6 + 1), "6 ** 5 is more than 5,000"
    assert reads.failed <= 20 * 9, "one each level, and retries of those that were found first"


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=30),
    st.sets(st.tuples(st.integers(0, 29), st.integers(0, 299)), max_size=60),
)
def test_each_partition_is_read_up_to_its_first_bad_record(ends: list[int], bad: set[tuple[int, int]]) -> None:
    reads = Reads(ends, {(number, offset) for number, offset in bad if number < len(ends) and offset < ends[number]})
    reads.run(600)

    assert reads.stored == reads.ends | reads.first_bad
    assert reads.search.cleared(reads.now) == reads.good
    assert {tp: each.offset for tp, each in reads.search.unreadable().items()} == reads.first_bad


def test_good_partitions_wait_for_a_full_batch_or_the_trigger() -> None:
    """Each batch of a lake leaves three inodes, so batches wait as in a streaming query."""
    reads = Reads([0, 0], set(), wait=20.0)
    reads.gives_up = True
    for second in range(3600):
        reads.ends = dict.fromkeys(reads.partitions, 10 * second)
        if second % 300 == 150:
            reads.bad = {(reads.partitions[0], 10 * second - 5)}
        reads.run(second - reads.now)

    assert reads.batches < 3600 / 20 + 12 * 20
    assert all(end - reads.stored[tp] < 300 for tp, end in reads.ends.items())
    reads.ends = dict.fromkeys(reads.partitions, 10 * MOST)
    reads.run(10)
    assert sum(reads.ends.values()) - sum(reads.stored.values()) < MOST, "full batches do not wait"


def test_good_partitions_are_read_while_bad_ones_are_retried_in_turn_with_a_back_off() -> None:
    reads = Reads([10] * 8, {(number, 3) for number in range(7)})
    reads.run(300)
    failed, good = reads.failed, reads.partitions[7]

    for _ in range(60):
        reads.ends[good] += 1
        reads.run(5)
        assert reads.stored[good] == reads.ends[good]
    assert 60 <= reads.failed - failed <= 80, "each of 7 about every 30 s"


def test_a_bad_record_that_can_be_read_at_last_is_stored_and_its_partition_stays_apart_for_a_while() -> None:
    reads = Reads([100] * 4, {(2, 50)})
    reads.run(100)
    assert reads.search.unreadable()

    reads.bad.clear()
    reads.run(60)
    assert (reads.stored, reads.search.unreadable()) == (reads.ends, {})
    assert reads.partitions[2] not in reads.search.cleared(reads.now)
    assert reads.search.cleared(reads.now + HEALTHY_SECONDS) == frozenset(reads.partitions)


def test_what_is_read_after_twenty_seconds_is_cleared_though_the_search_goes_on() -> None:
    reads = Reads([12] * 100, {(number, 7) for number in range(0, 100, 5)}, stores=0.5, fails=1.5)
    reads.run(JOIN_SECONDS - 2)
    assert reads.search.cleared(reads.now) == frozenset()

    reads.run(5)
    cleared = reads.search.cleared(reads.now)
    assert cleared
    assert cleared < reads.good


def test_the_next_search_knows_what_the_last_one_found_out_unless_the_partition_was_moved() -> None:
    reads = Reads([100] * 4, {(1, 50), (2, 50)})
    reads.run(100)
    moved = {**reads.stored, reads.partitions[1]: 51}

    search = CarefulSearch(moved, MOST, 0.0, reads.now, reads.search)

    assert list(search.unreadable()) == [reads.partitions[2]]
    assert search.next(reads.ends, reads.now)[reads.partitions[1]] == (51, 100)

    reads = Reads([100] * 8, {(1, 50)})
    reads.search.failed(reads.search.next(reads.ends, reads.now), "bad", reads.now)
    waiting = list(reads.search.waiting)

    search = CarefulSearch(reads.stored, MOST, 0.0, reads.now, reads.search)

    assert waiting
    assert list(search.waiting)[: len(waiting)] == waiting, "it begins with the groups that still waited"


A, B = TopicPartition("t", 0), TopicPartition("t", 1)
END = 20


class RangeFrame(Frame):
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
        self.batches: list[Batch] = []
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
        is_bad = any(tp in ranges and ranges[tp][0] <= at < ranges[tp][1] for tp, at in self.bad)
        return RangeFrame(ranges, lambda: self.is_away or is_bad)

    def _unreadable(self, tp: TopicPartition, offset: int) -> list[Message]:
        is_bad = self.is_away or (tp, offset) in self.bad
        return [Message(tp.topic, tp.partition, offset, None, b"bad", offset * 10)] if is_bad and self.gives_up else []

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


@pytest.mark.parametrize(
    "error", [CorruptRecordError("no UTF-8"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), zlib.error()]
)
def test_a_record_that_kafka_python_cannot_parse_is_no_dead_letter(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(unreadable_records, "_records", raising(error))
    kafka = KafkaSettings("localhost:1", "g", ("t",), "earliest", "range", 6, 1, "read_committed", None)

    assert unreadable_records.unreadable_records(kafka, TopicPartition("t", 0), 7) == []

    assert "t-0 offset 7 cannot be read" in caplog.text
