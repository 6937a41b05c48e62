from __future__ import annotations

from kafka import TopicPartition

from kctl_agent.worker.lifecycle.query_groups import RETRY_SECONDS, LeftOut

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
WHY = "it has no leader"


def test_a_partition_is_left_out_until_it_is_answered_for_and_its_back_off_is_over() -> None:
    left = LeftOut()
    left.add({A: WHY}, 100.0)

    assert left.still({A, B}, 100.9) == {A}, "too early"
    assert left.still({B}, 101.0) == {A}, "nobody answers"
    assert left.still({A, B}, 101.0) == frozenset()


def test_the_back_off_grows_while_the_leader_comes_and_goes_and_is_forgotten_when_it_stays() -> None:
    left, now, pauses = LeftOut(), 0.0, []
    for _ in range(len(RETRY_SECONDS) + 1):
        left.add({A: WHY}, now)
        began = now
        while left.still({A}, now):
            now += 0.5
        pauses.append(now - began)
        left.take_in({A})
    assert pauses == [*RETRY_SECONDS, RETRY_SECONDS[-1]]

    left.keep({A}, now + RETRY_SECONDS[-1] + 1)
    left.add({A: WHY}, 1000.0)
    assert left.still({A}, 1001.0) == frozenset(), "the shortest back-off again"


def test_what_lasts_is_reported_and_what_an_election_heals_is_not() -> None:
    left = LeftOut()
    left.add({A: WHY, B: WHY}, 0.0)
    left.take_in({B})
    left.add({A: "another reason"}, 5.0)

    assert left.lasting(10.0, 9.9) == {}
    assert left.lasting(10.0, 10.0) == {A: "another reason"}
    left.keep({B}, 11.0)
    assert left.lasting(10.0, 20.0) == {}, "it is somebody else's"
