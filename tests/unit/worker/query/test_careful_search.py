from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import TopicPartition

from kctl_agent.worker.query.careful_search import HEALTHY_SECONDS, JOIN_SECONDS, CarefulSearch, Ranges

MOST = 10_000
SPREAD = [(40, 8), (40, 10), (40, 20), (100, 12), (400, 8), (400, 40)]


class Reads:
    """Partitions with records at all offsets up to their ends; the records in `bad` cannot be read."""

    def __init__(
        self,
        ends: list[int],
        bad: set[tuple[int, int]],
        *,
        stores: float = 0.3,
        fails: float = 0.9,
        wait: float = 0.0,
        gives_up: bool = False,
    ) -> None:
        self.partitions = [TopicPartition("t", number) for number in range(len(ends))]
        self.ends = dict(zip(self.partitions, ends, strict=True))
        self.bad = {(self.partitions[number], offset) for number, offset in bad}
        self.stores, self.fails, self.gives_up = stores, fails, gives_up
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


@pytest.mark.parametrize(("partitions", "bad"), SPREAD[:5])
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
    """As in a streaming query: each batch of a lake leaves three inodes."""
    reads = Reads([0, 0], set(), wait=20.0, gives_up=True)
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


def test_a_search_that_is_begun_again_every_twenty_seconds_reads_all_good_partitions_too() -> None:
    """The search restarts whenever partitions are cleared."""
    reads = Reads([12] * 100, {(number, 7) for number in range(0, 100, 8)}, stores=0.5, fails=1.5)
    for _ in range(10):
        reads.run(JOIN_SECONDS)
        left = {tp: at for tp, at in reads.stored.items() if tp not in reads.search.cleared(reads.now)}
        reads.search = CarefulSearch(left, MOST, 0.0, reads.now, reads.search)

    assert all(reads.stored[tp] == 12 for tp in reads.good)


def test_the_next_search_knows_what_the_last_one_found_out_unless_the_partition_was_moved() -> None:
    reads = Reads([100] * 4, {(1, 50), (2, 50)})
    reads.run(100)
    moved = {**reads.stored, reads.partitions[1]: 51}

    search = CarefulSearch(moved, MOST, 0.0, reads.now, reads.search)

    assert list(search.unreadable()) == [reads.partitions[2]]
    assert search.next(reads.ends, reads.now)[reads.partitions[1]] == (51, 100)
