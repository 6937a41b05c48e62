"""How partitions are shared out among queries: a simulation of queries that fail because of some of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from kctl_agent.worker.lifecycle.query_groups import HEALTHY_SECONDS, MOST_QUERIES, SPLIT_AFTER, QueryGroups

PARTITIONS = [TopicPartition("t", number) for number in range(12)]


class Simulation:
    """Queries that fail within a second if they read one of `bad`, and store a batch otherwise."""

    def __init__(self, count: int, bad: set[int]) -> None:
        self.wanted = frozenset(PARTITIONS[:count])
        self.bad = {PARTITIONS[number] for number in bad}
        self.groups = QueryGroups()
        self.now = 0.0

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            plan = self.groups.plan(self.wanted, self.now)
            assert sorted(tp for group in plan for tp in group) == sorted(self.wanted), "each in one query"
            assert len(plan) <= MOST_QUERIES + 2
            for group in plan:
                if self.groups.is_due(group, self.now):
                    if group & self.bad:
                        self.groups.failed(group, "no number", self.now)
                    else:
                        self.groups.stored(group)

    @property
    def plan(self) -> set[frozenset[TopicPartition]]:
        return set(self.groups.plan(self.wanted, self.now))


def test_as_long_as_nothing_fails_there_is_one_query() -> None:
    simulation = Simulation(5, set())
    simulation.run(100)

    assert simulation.plan == {simulation.wanted}


@pytest.mark.parametrize("bad", range(12))
def test_the_partition_that_makes_its_query_fail_is_alone_in_one_and_the_others_are_together(bad: int) -> None:
    simulation = Simulation(12, {bad})
    simulation.run(60 + HEALTHY_SECONDS)

    alone = frozenset({PARTITIONS[bad]})
    assert simulation.plan == {alone, simulation.wanted - alone}
    assert simulation.groups.isolated() == {PARTITIONS[bad]: "no number"}


def test_a_partition_that_is_read_again_comes_back_to_the_others() -> None:
    simulation = Simulation(4, {2})
    simulation.run(100)
    assert simulation.groups.isolated()

    simulation.bad.clear()
    simulation.run(2 * HEALTHY_SECONDS + 1)

    assert simulation.plan == {simulation.wanted}
    assert simulation.groups.isolated() == {}


@pytest.mark.parametrize("count", [1, 4])
def test_where_everything_fails_each_is_isolated_and_all_are_in_one_query_again_when_nothing_does(count: int) -> None:
    simulation = Simulation(count, set(range(count)))
    simulation.run(200)

    assert simulation.plan == {frozenset({tp}) for tp in simulation.wanted}
    assert simulation.groups.isolated() == dict.fromkeys(simulation.wanted, "no number")

    simulation.bad.clear()
    simulation.run(2 * HEALTHY_SECONDS + 1)
    assert simulation.plan == {simulation.wanted}


def test_two_failures_and_an_outage_split_nothing() -> None:
    groups, wanted = QueryGroups(), frozenset(PARTITIONS[:4])
    for number in range(SPLIT_AFTER - 1):
        assert groups.failed(wanted, "x", float(number)) == (number + 1, [1.0, 2.0][number])
    assert groups.plan(wanted, 10.0) == [wanted]

    for number in range(10):
        groups.failed(wanted, "x", 10.0 + number, is_own_fault=False)
    assert groups.plan(wanted, 30.0) == [wanted]
    assert groups.isolated() == {}


def test_a_rebalance_in_which_nothing_is_assigned_forgets_nothing_and_what_is_gone_is_forgotten() -> None:
    simulation = Simulation(4, {2})
    simulation.run(100)

    assert simulation.groups.plan(frozenset(), 101.0) == []
    assert simulation.groups.isolated()
    simulation.groups.plan(frozenset(PARTITIONS[:2]), 102.0)
    assert simulation.groups.isolated() == {}


@given(st.integers(1, 12), st.sets(st.integers(0, 11), max_size=3))
def test_whatever_is_bad_each_partition_is_in_one_query_and_the_good_are_read_at_the_end(
    count: int, bad: set[int]
) -> None:
    simulation = Simulation(count, {number for number in bad if number < count})
    simulation.run(300)

    if simulation.bad != simulation.wanted:
        assert not any(group & simulation.bad and group - simulation.bad for group in simulation.plan)
