from __future__ import annotations

from typing import NamedTuple

import pytest

from kctl.errors import BrokerUnreachable, KctlError
from kctl.kafka.client.layout import topics_of
from kctl.kafka.offsets import EARLIEST, MAX_TIMESTAMP, commit, committed, log_offsets
from kctl.kafka.produce import DeliveryReport, PartitionReport
from kctl.kafka.target import Target, target, topic_and_partitions
from tests.servers.scripted_broker import HangsUp, Step
from tests.unit.kctl_kafka.scripts import (
    LOADING,
    NOT_COORDINATOR,
    SOON,
    committed_codes,
    connection_to,
    fetched,
    listed_offsets,
)

FIRST, SECOND = ("orders", 0), ("orders", 1)
NOT_LEADER = 6
ENDS = listed_offsets({FIRST: 10, SECOND: 20})


def test_a_leader_that_has_moved_is_found() -> None:
    steps: list[Step] = [listed_offsets({FIRST: 10}, {SECOND: NOT_LEADER}), ENDS]
    with connection_to({"ListOffsets": steps}, topics={"orders": 2}) as (broker, connection):
        found = log_offsets(connection, topics_of(connection.metadata(["orders"])), [FIRST, SECOND])

    assert [found[key].offset for key in (FIRST, SECOND)] == [10, 20]
    assert [
        [each.partition_index for topic in request.topics for each in topic.partitions]
        for request in broker.requests
        if request.name == "ListOffsetsRequest"
    ] == [[0, 1], [1]]


def test_a_leader_that_is_never_found_is_an_error_before_the_time_is_over() -> None:
    script = {"ListOffsets": listed_offsets({}, {FIRST: NOT_LEADER})}
    with connection_to(script, topics={"orders": 1}, seconds=SOON) as (_, connection):
        found = log_offsets(connection, topics_of(connection.metadata(["orders"])), [FIRST])
        left = connection.deadline.left_seconds

    assert (found[FIRST].offset, found[FIRST].error) == (None, "NOT_LEADER_OR_FOLLOWER")
    assert left > 0


def test_each_kind_of_place_is_asked_for_in_a_version_that_knows_it() -> None:
    topics = {"orders": 1}
    with connection_to({"ListOffsets": ENDS}, topics=topics) as (broker, connection):
        known = topics_of(connection.metadata(["orders"]))
        for at in (EARLIEST, MAX_TIMESTAMP):
            log_offsets(connection, known, [FIRST], at, is_read_committed=True)

    asked = [request for request in broker.requests if request.name == "ListOffsetsRequest"]
    assert [each.topics[0].partitions[0].timestamp for each in asked] == [EARLIEST, MAX_TIMESTAMP]
    assert [each.isolation_level for each in asked] == [1, 1]


def test_what_a_group_has_not_committed_is_none_and_an_error_if_its_coordinator_hangs_up() -> None:
    with connection_to({"OffsetFetch": fetched({"billing": {FIRST: 7, SECOND: -1}})}) as (_, connection):
        found = committed(connection, {"billing": None})["billing"]

    assert not isinstance(found, KctlError)
    assert {key: each.offset for key, each in found.items()} == {FIRST: 7, SECOND: None}

    with connection_to({"OffsetFetch": HangsUp()}, has_retries=False) as (broker, connection):
        failed = committed(connection, {"billing": None})
    assert isinstance(failed["billing"], BrokerUnreachable)
    assert broker.asked.count("OffsetFetch") == 1


@pytest.mark.parametrize("step", [fetched({"billing": LOADING}), fetched({"billing": NOT_COORDINATOR}), HangsUp()])
def test_a_coordinator_that_is_not_ready_is_asked_again(step: Step) -> None:
    with connection_to({"OffsetFetch": [step, fetched({"billing": {FIRST: 7}})]}) as (_, connection):
        found = committed(connection, {"billing": [FIRST]})["billing"]

    assert not isinstance(found, KctlError)
    assert found[FIRST].offset == 7


def test_a_commit_to_a_coordinator_that_loads_is_tried_again_and_one_without_an_answer_is_an_error() -> None:
    script = {"OffsetCommit": [committed_codes(LOADING), committed_codes(0)]}
    with connection_to(script) as (broker, connection):
        errors = commit(connection, "billing", {FIRST: 5})

    assert errors == {FIRST: None}
    assert broker.asked.count("OffsetCommit") == 2

    with connection_to({"OffsetCommit": HangsUp()}, seconds=SOON) as (_, connection), pytest.raises(BrokerUnreachable):
        commit(connection, "billing", {FIRST: 5})


PLACES = {
    "earliest": Target("earliest"),
    "latest": Target("latest"),
    "1200": Target("offset", 1200),
    **dict.fromkeys(("@1795255200000", "2026-11-21T10:00:00Z", "2026-11-21T10:00:00"), Target("time", 1795255200000)),
    "shift-by -100": Target("shift", -100),
    "shift-by 7": Target("shift", 7),
}


def test_a_place_in_a_log_is_understood_and_partitions_stand_after_a_colon() -> None:
    assert {words: target(words.split()) for words in PLACES} == PLACES
    assert topic_and_partitions("orders") == ("orders", None)
    assert topic_and_partitions("orders:2,0,2") == ("orders", [0, 2])


class Metadata(NamedTuple):
    partition: int
    offset: int


def test_a_report_has_count_and_offsets_of_each_partition_and_the_first_failure() -> None:
    report, first = DeliveryReport(), OSError("first")

    for partition, offset in ((2, 7), (0, 40), (2, 8)):
        report.add(Metadata(partition, offset), 10)
    for error in (first, OSError("second")):
        report.add_failure(error)

    assert list(report.partitions().items()) == [(0, PartitionReport(1, 40, 40)), (2, PartitionReport(2, 7, 8))]
    assert (report.messages, report.bytes, report.failed, report.first_failure) == (3, 30, 2, first)

    report = DeliveryReport()
    report.add(Metadata(0, -1), 10)
    assert report.partitions() == {0: PartitionReport(1, None, None)}, "without acknowledgements, offsets are not known"
