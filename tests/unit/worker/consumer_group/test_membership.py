import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from kctl_agent.worker.consumer_group import membership
from kctl_agent.worker.consumer_group.commits import Commits
from kctl_agent.worker.consumer_group.membership import MemberFenced, MemberLost, partition_names
from tests.conftest import eventually
from tests.servers.scripted_broker import Answers, Script, Stalls
from tests.unit.worker.coordinator import committed, group_script, joining, poll_until, rejected, scripted_group
from tests.unit.worker.offsets.broker_answers import EVERYTHING, ORDERS_0, ORDERS_1, PAYMENTS_0

OFFSETS = {ORDERS_0: 10, ORDERS_1: 20, PAYMENTS_0: 30}
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING = 22, 25, 27


def result_of(name: str, request: Any) -> Mapping[str, Any]:
    step = group_script({})[name]
    assert isinstance(step, Answers)
    assert callable(step.result)
    return step.result(request)


def test_a_commit_is_retried_if_that_may_help_and_an_error_of_one_topic_is_its_own() -> None:
    errors = TopicAuthorizationFailedError, OffsetMetadataTooLargeError, UnknownTopicOrPartitionError
    of_one_topic = [committed({"payments": error.errno}) for error in errors]
    busy, evicted = rejected(CoordinatorNotAvailableError.errno), rejected(UNKNOWN_MEMBER)
    with scripted_group({"OffsetCommit": [busy, committed(), *of_one_topic, evicted]}) as (broker, member):
        assert member.commit(OFFSETS) == {}
        assert broker.asked.count("OffsetCommit") == 2

        for number, error in enumerate(errors, 3):
            assert member.commit(OFFSETS) == {PAYMENTS_0: error}
            assert broker.asked.count("OffsetCommit") == number  # the caller retries, and polls the group meanwhile

        with pytest.raises(MemberLost):
            member.commit(OFFSETS)
    fenced = rejected(FencedInstanceIdError.errno)
    with scripted_group({"OffsetCommit": fenced}) as (_, member), pytest.raises(MemberFenced):
        member.commit(OFFSETS)


def test_a_member_that_starts_joins_once_though_it_is_the_leader() -> None:
    with scripted_group({}) as (broker, member):

        def asked(name: str) -> int:
            member.poll(0.05)
            return broker.asked.count(name)

        metadata = asked("Metadata")
        eventually(lambda: asked("Metadata") > metadata, what="metadata is refreshed")
        heartbeats = asked("Heartbeat")
        eventually(lambda: asked("Heartbeat") > heartbeats + 2, what="and nothing comes of it")

        assert broker.asked.count("JoinGroup") == 1


@pytest.mark.parametrize(
    "note",
    [
        *(b"", b"\xff", b'{"leader":' + b"[" * 100_000),
        *(
            b'{"leader":"a","partitions":{"t":%s}}' % count
            for count in (b"1e999", b"1000000000", b'"%s"' % (b"9" * 5000))
        ),
    ],
)
def test_a_note_that_no_leader_writes_names_no_leader(note: bytes) -> None:
    assert membership._leader(note) == (None, {})


def test_a_join_that_ends_between_two_polls_is_taken_up_and_no_other_is_begun() -> None:
    may_end, sync = threading.Event(), Answers(partial(result_of, "SyncGroup"))
    with joining({"SyncGroup": [Stalls(may_end, then=sync), sync]}) as (broker, member):
        poll_until(member, lambda: "SyncGroup" in broker.asked)
        may_end.set()
        eventually(lambda: member._consumer._coordinator._join_task.is_done, what="it has ended, and nobody polls")
        assert member.partitions == frozenset()

        poll_until(member, lambda: member.partitions == EVERYTHING)
        assert broker.asked.count("JoinGroup") == 1


def test_a_member_that_has_lost_its_partitions_claims_none_of_them_when_it_joins_again() -> None:
    """A leader assigns claimed partitions to no other member, so after a false claim they had no reader."""
    claims: list[list[str]] = []
    joins_before: list[int] = []

    def joined(request: Any) -> Mapping[str, Any]:
        claimed = ConsumerProtocolSubscription.decode(request.protocols[0].metadata).owned_partitions
        claims.append(sorted(each.topic for each in claimed))
        return result_of("JoinGroup", request)

    def evicted(_request: Any) -> Mapping[str, Any]:
        if len(claims) >= 2 and not joins_before:
            joins_before.append(len(claims))
            return {"error_code": UNKNOWN_MEMBER}
        return {"error_code": REBALANCING if len(claims) < 2 else 0}

    script: Script = {"JoinGroup": Answers(joined), "Heartbeat": Answers(evicted)}
    with joining(script, "cooperative-sticky") as (_, member):
        poll_until(
            member, lambda: bool(joins_before) and len(claims) > joins_before[0] and member.partitions == EVERYTHING
        )

    assert claims[0] == []
    assert claims[joins_before[0] - 1] == ["orders", "payments"], "in a rebalance"
    assert claims[joins_before[0]] == [], "after it was evicted"


def test_a_revocation_runs_while_the_main_thread_is_inside_poll_and_at_no_other_time() -> None:
    """Therefore the polling thread needs no lock: between two polls, the assignment does not change."""
    revoked_in_poll: list[bool] = []
    is_in_poll = False

    def on_revoked(partitions: set[object]) -> dict[object, int]:
        if partitions:
            revoked_in_poll.append(is_in_poll)
        return {}

    script: Script = {
        "OffsetCommit": committed(),
        "Heartbeat": [*[Answers({"error_code": REBALANCING})] * 3, Answers()],
    }
    with scripted_group(script, on_revoked=on_revoked) as (broker, member):
        eventually(lambda: broker.asked.count("Heartbeat") > 3)
        assigned = member.partitions
        assert revoked_in_poll == []

        is_in_poll = True
        poll_until(member, lambda: bool(revoked_in_poll) and member.partitions == assigned)

    assert set(revoked_in_poll) == {True}


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, ILLEGAL_GENERATION])
def test_a_cooperative_member_that_is_evicted_between_join_and_sync_has_lost_its_partitions(code: int) -> None:
    """Another member may have read these partitions meanwhile, so a commit would move the offsets back."""
    happened: list[str] = []
    due: list[str] = []  # if the first join is slow, a script in a fixed order would evict it before it had partitions

    def once(what: str, code: int) -> dict[str, int] | None:
        return {"error_code": code} if due[:1] == [what] and due.pop(0) else None

    script: Script = {
        "SyncGroup": Answers(lambda request: once("evicted", code) or result_of("SyncGroup", request)),
        "Heartbeat": Answers(lambda _: once("rebalance", REBALANCING) or {}),
    }
    with joining(script, "cooperative-sticky", {"on_lost": partial(happened.append, "lost")}) as (broker, member):
        poll_until(member, lambda: member.partitions == EVERYTHING)
        asked = broker.asked.count("SyncGroup")
        due += ["rebalance", "evicted"]
        poll_until(member, lambda: broker.asked.count("SyncGroup") >= asked + 2 and member.partitions == EVERYTHING)

    assert happened == ["lost"]


@pytest.mark.parametrize(
    ("answer", "known"),
    [
        ({}, OFFSETS),
        ({"orders": ILLEGAL_GENERATION}, None),
        ({"payments": TopicAuthorizationFailedError.errno}, {ORDERS_0: 10, ORDERS_1: 20}),
    ],
)
def test_a_last_commit_counts_by_its_answer(answer: dict[str, int], known: dict[TopicPartition, int] | None) -> None:
    done: list[dict[TopicPartition, int]] = []

    def on_revoked(partitions: set[object]) -> dict[Any, int]:
        if partitions:
            member._consumer._coordinator.coordinator_dead("it has moved")
        return OFFSETS if partitions else {}

    script: Script = {"OffsetCommit": committed(answer)}
    with scripted_group(script, on_revoked=on_revoked, on_committed=done.append) as (broker, member):
        pass

    assert "OffsetCommit" in broker.asked
    assert done == ([] if known is None else [known])


def test_a_commit_that_is_rejected_repeatedly_is_tried_less_and_less_often() -> None:
    commits, now, pauses = Commits(), 100.0, []
    for _ in range(6):
        commits.answered({ORDERS_0: 20}, [ORDERS_0], now)
        pause = next(s for s in (0.5, 1, 2, 5, 10, 60) if ORDERS_0 not in commits.waiting([ORDERS_0], now + s))
        pauses.append(pause)
        now += pause

    assert pauses == [1, 2, 5, 10, 10, 10]


def test_a_line_shows_twenty_partitions_in_order_and_how_many_more_there_are() -> None:
    many = {TopicPartition("t", partition) for partition in range(400)}

    assert partition_names(set()) == "none"
    assert partition_names({TopicPartition("t", 10), TopicPartition("t", 9)}) == "t-9, t-10"
    assert partition_names(many, {TopicPartition("t", 1): 7}).startswith("t-0, t-1 from 7, t-2, ")
    assert partition_names(many).endswith(", t-19 and 380 more")
