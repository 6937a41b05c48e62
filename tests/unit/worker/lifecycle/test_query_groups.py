from kafka import TopicPartition

from kctl_agent.worker.lifecycle.query_groups import RETRY_SECONDS, SUSPECT_AFTER, LeftOut, QueryGroups

PARTITIONS = frozenset(TopicPartition("t", number) for number in range(4))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
A = frozenset({T0})
WHY = "it has no leader"


def test_a_query_that_fails_twice_has_its_partitions_read_carefully_until_they_are_cleared() -> None:
    groups = QueryGroups()
    assert groups.failed(PARTITIONS, 0.0) == (1, 1.0)
    assert (groups.is_careful(PARTITIONS), groups.is_due(PARTITIONS, 0.9)) == (False, False)
    assert groups.failed(PARTITIONS, 1.0) == (2, 0.0)
    assert (groups.is_careful(PARTITIONS), groups.is_due(PARTITIONS, 1.0)) == (True, True)
    assert groups.plan(PARTITIONS) == [PARTITIONS]

    groups.clear(PARTITIONS - A)
    assert groups.plan(PARTITIONS) == [PARTITIONS - A, A], "those that are cleared are streamed first"
    assert (groups.is_careful(A), groups.is_careful(PARTITIONS - A)) == (True, False)
    assert groups.failed(A, 10.0) == (1, 1.0), "the careful query has a back-off of its own"
    assert (groups.is_due(A, 10.9), groups.is_due(PARTITIONS - A, 10.9)) == (False, True)
    assert groups.failed(A, 11.0) == (2, 2.0)
    groups.stored(A)
    assert groups.failed(A, 12.0) == (1, 1.0)

    groups.clear(A)
    assert groups.plan(PARTITIONS) == [PARTITIONS]


def test_a_batch_between_two_failures_an_outage_and_a_start_that_fails_put_nothing_under_suspicion() -> None:
    groups = QueryGroups()
    for number in range(10):
        groups.failed(PARTITIONS, float(number))
        groups.stored(PARTITIONS)
    for number in range(10):
        assert groups.failed(PARTITIONS, 10.0, is_own_fault=False) == (number + 1, (1.0, 2.0, 5.0)[min(number, 2)])
    for _ in range(10):
        groups.failed(PARTITIONS, 10.0, was_read=False)

    assert groups.suspects == frozenset()


def test_a_rebalance_in_which_nothing_is_assigned_forgets_nothing_and_what_is_gone_is_forgotten() -> None:
    groups = QueryGroups()
    for number in range(SUSPECT_AFTER):
        groups.failed(PARTITIONS, float(number))

    assert groups.plan(frozenset()) == []
    assert groups.suspects == PARTITIONS
    groups.plan(A)
    assert groups.suspects == A


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
        left.keep({T0}, now + RETRY_SECONDS[-1])
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
