import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kafka import errors

from kctl.errors import (
    AuthenticationFailed,
    BrokerRefused,
    BrokerUnreachable,
    KctlError,
    MessageTooLarge,
    NotAuthorised,
    OperationRefused,
)
from kctl.kafka import mirror
from kctl.kafka.client.connection import Deadline
from kctl.kafka.client.layout import topics_of
from kctl.kafka.client.reasons import code_failure, failure, name_of_code
from kctl.kafka.consume import Record
from kctl.kafka.mirror import Cluster
from kctl.kafka.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, LogOffset, commit, committed, log_offsets
from kctl.kafka.produce import DeliveryReport, PartitionReport
from kctl.kafka.target import Target, target, topic_and_partitions
from tests.clock import Clock
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
    **dict.fromkeys(
        ("@1795255200000", "2026-11-21T10:00:00Z", "2026-11-21T10:00:00", "2026-11-21 10:00:00"),
        Target("time", 1795255200000),
    ),
    "shift-by -100": Target("shift", -100),
    "shift-by +7": Target("shift", 7),
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


@pytest.mark.parametrize(
    ("error", "kind", "name"),
    [
        (errors.TopicAuthorizationFailedError(), NotAuthorised, "TOPIC_AUTHORIZATION_FAILED"),
        (errors.ClusterAuthorizationFailedError(), NotAuthorised, "CLUSTER_AUTHORIZATION_FAILED"),
        (errors.SaslAuthenticationFailedError("bad"), AuthenticationFailed, "SASL_AUTHENTICATION_FAILED (bad)"),
        (errors.MessageSizeTooLargeError(), MessageTooLarge, "MESSAGE_TOO_LARGE"),
        (errors.KafkaConnectionError("gone"), BrokerUnreachable, "gone"),
        (errors.InvalidTimestampError(), BrokerRefused, "INVALID_TIMESTAMP"),
    ],
)
def test_an_error_keeps_the_brokers_name_and_gets_an_exit_code(error: Exception, kind: type, name: str) -> None:
    reported = failure(error, "topic orders")

    assert type(reported) is kind
    assert str(reported).startswith("topic orders: ")
    assert name in str(reported)


def test_an_error_that_this_client_does_not_know_keeps_its_number() -> None:
    assert name_of_code(4711) == "error 4711"
    assert "error 4711" in str(code_failure(4711, "group g"))
    assert name_of_code(0) is None


def test_retries_end_at_half_of_the_time_and_waiting_at_a_fifth() -> None:
    clock = Clock(100.0)
    deadline = Deadline(10.0, has_retries=True, clock=clock)
    seen = []

    for now in (100.0, 104.9, 105.1, 108.0, 120.0):
        clock.now = now
        seen.append((round(deadline.left_seconds, 1), deadline.may_retry, deadline.may_wait))

    assert seen[:3] == [(10.0, True, True), (5.1, True, True), (4.9, False, True)]
    assert seen[3:] == [(2.0, False, False), (0.0, False, False)]
    assert deadline.advice == "give it longer with --timeout, or look at the broker"
    assert deadline.left_milliseconds == 1, "0 would be no limit for kafka-python"
    deadline.renew()
    assert (deadline.left_seconds, deadline.may_retry) == (10.0, True)


def printed(program: str) -> list[str]:
    program = f"from kctl.kafka.client import light_imports; light_imports.install(); import sys\n{program}"
    return subprocess.check_output([sys.executable, "-c", program], text=True).split()


def test_only_what_is_needed_is_imported() -> None:
    imported = printed("print(*sys.modules)")

    assert "kafka.net.manager" in imported
    needless = {"kafka.consumer", "kafka.producer", "kafka.admin", "kafka.protocol.admin.acl", "kafka.net.sasl.scram"}
    assert not needless & set(imported)
    assert not {"_ssl", "kafka.metrics", "lzma"} & set(imported)  # modules replaced by stubs


TIME = 7


def cluster(values: Sequence[str], start: int = 0) -> Cluster:
    records = [
        Record("orders", 0, offset, TIME + (value == "later"), None, value.encode(), ())
        for offset, value in enumerate(values, start)
    ]

    def read(_topic: str, begin: Mapping[int, int], end: Mapping[int, int] | None) -> Iterator[Record]:
        return (each for each in records if begin[0] <= each.offset < (end or {})[0])

    connection: Any = SimpleNamespace(
        deadline=SimpleNamespace(renew=lambda: None),
        offsets={EARLIEST: start, LATEST: start + len(values), TIME: start},
    )
    return Cluster(connection, {}, read)


@pytest.fixture(autouse=True)
def offsets_of_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    def log_offsets(connection: Any, _topics: Any, keys: list[Any], at: int) -> dict[Any, LogOffset]:
        return {key: LogOffset(connection.offsets[at]) for key in keys}

    monkeypatch.setattr(mirror, "log_offsets", log_offsets)


def translated(old: Cluster, new: Cluster, offset: int) -> int:
    return mirror.translated(old, new, ("orders", 0), offset)


@pytest.mark.parametrize("values", [["x", "x", "later"], ["x"] * 4])
def test_of_equal_messages_of_which_the_clusters_have_different_numbers_none_is_taken(values: list[str]) -> None:
    old = cluster(["x", "x", "x", "later"])

    for one, other in ((old, cluster(values)), (cluster(values), old)):
        with pytest.raises(OperationRefused, match=r"messages like that at offset 1, the new one .*: use `kctl kafka"):
            translated(one, other, 2)


def test_of_few_equal_messages_the_one_of_the_same_rank_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    old = cluster(["a", "x", "x", "x", "later"], start=100)
    assert translated(old, cluster(["a", "x", "b", "x", "x", "later"], start=5), 103) == 9

    log = cluster([str(number) for number in range(10)])
    assert translated(log, log, 10) == 10
    assert translated(log, cluster(["other", *map(str, range(10))]), 0) == 0
    assert translated(cluster([]), log, 0) == 0
    with pytest.raises(OperationRefused, match="does not have the message at offset 0 of the old cluster"):
        translated(log, cluster([str(number) for number in range(5, 10)], start=5), 0)
    monkeypatch.setattr(mirror, "_SEARCHED", 5)
    with pytest.raises(OperationRefused, match="not among the first 5 messages of its time: use `kctl kafka"):
        translated(log, log, 10)
