from __future__ import annotations

from kafka import TopicPartition

from kctl_agent.worker.lifecycle.query_groups import RETRY_SECONDS, LeftOut

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
WHY = "it has no leader"


def test_a_partition_is_left_out_until_it_is_answered_for_and_its_growing_back_off_is_over() -> None:
    left, now, pauses = LeftOut(), 0.0, []
    for _ in range(len(RETRY_SECONDS) + 1):
        left.add({T0: WHY}, now)
        began = now
        while left.still({T0, T1}, now):
            now += 0.5
        pauses.append(now - began)
        assert left.still({T1}, now) == {T0}, "its leader does not answer"
        left.take_in({T0})
    assert pauses == [*RETRY_SECONDS, RETRY_SECONDS[-1]]

    left.keep({T0}, now + RETRY_SECONDS[-1] + 1)  # the leader stays
    left.add({T0: WHY}, 1000.0)
    assert left.still({T0}, 1001.0) == frozenset(), "the shortest back-off again"


def test_what_lasts_is_reported_and_what_an_election_heals_is_not() -> None:
    left = LeftOut()
    left.add({T0: WHY, T1: WHY}, 0.0)
    left.take_in({T1})
    left.add({T0: "another reason"}, 5.0)

    assert left.lasting(10.0, 9.9) == {}
    assert left.lasting(10.0, 10.0) == {T0: "another reason"}
    left.keep({T1}, 11.0)
    assert left.lasting(10.0, 20.0) == {}, "it is somebody else's"
