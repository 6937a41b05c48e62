from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from kafka.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from kctl_agent.worker.consumer_group.membership import MemberLost, Membership
from tests.conftest import eventually
from tests.servers.scripted_broker import Answers, Script, ScriptedBroker, Stalls
from tests.unit.worker.consumer_group.coordinator import (
    EVERYTHING,
    ORDERS_0,
    ORDERS_1,
    PAYMENTS_0,
    TOPICS,
    committed,
    group_script,
    member_settings,
    scripted_group,
)

OFFSETS = {ORDERS_0: 10, ORDERS_1: 20, PAYMENTS_0: 30}
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING = 22, 25, 27


@pytest.mark.parametrize(
    "error", [TopicAuthorizationFailedError, OffsetMetadataTooLargeError, UnknownTopicOrPartitionError]
)
def test_an_error_of_one_topic_is_its_own_and_the_others_are_committed(error: type[KafkaError]) -> None:
    with scripted_group({"OffsetCommit": committed({"payments": error.errno})}) as (broker, member):
        refused = member.commit(OFFSETS)

    assert refused == {PAYMENTS_0: error}
    assert broker.asked.count("OffsetCommit") == 1  # the caller retries, and polls the group meanwhile


def test_an_error_of_the_whole_group_is_raised() -> None:
    evicted = committed(dict.fromkeys(("orders", "payments"), UNKNOWN_MEMBER))
    with scripted_group({"OffsetCommit": evicted}) as (_, member), pytest.raises(MemberLost):
        member.commit(OFFSETS)


def test_what_may_work_soon_is_tried_again() -> None:
    busy = committed(dict.fromkeys(("orders", "payments"), CoordinatorNotAvailableError.errno))
    with scripted_group({"OffsetCommit": [busy, committed()]}) as (broker, member):
        assert member.commit(OFFSETS) == {}

    assert broker.asked.count("OffsetCommit") == 2


def test_a_revocation_reports_committed_offsets_without_rejected_ones() -> None:
    known: list[dict[object, int]] = []
    script = {"OffsetCommit": committed({"payments": TopicAuthorizationFailedError.errno})}

    with scripted_group(script, on_revoked=lambda revoked: OFFSETS if revoked else {}, on_committed=known.append):
        pass

    assert known, "at the end, and before if it has joined once more"
    assert all(offsets == {ORDERS_0: 10, ORDERS_1: 20} for offsets in known)


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


def test_a_join_that_ends_between_two_polls_is_taken_up_and_no_other_is_begun() -> None:
    may_end, sync = threading.Event(), group_script({})["SyncGroup"]
    assert isinstance(sync, Answers)
    script = group_script({"SyncGroup": [Stalls(may_end, then=sync), sync]})
    with ScriptedBroker(script, topics=TOPICS) as broker:
        member = Membership(member_settings(broker.address), "worker-0", lambda _: {}, lambda: None, lambda _: None)
        coordinator = member._consumer._coordinator
        try:
            while "SyncGroup" not in broker.asked:
                member.poll(0.05)
            may_end.set()
            eventually(lambda: coordinator._join_task.is_done, what="it has ended, and nobody polls")
            assert member.partitions == frozenset()

            while member.partitions != EVERYTHING:
                member.poll(0.05)
            assert broker.asked.count("JoinGroup") == 1
        finally:
            member.close()


def test_a_member_that_has_lost_its_partitions_claims_none_of_them_when_it_joins_again() -> None:
    """A leader assigns partitions that a member claims to no other until the member gives them up. A member never gives
    up partitions that it does not own: they had no reader until the next rebalance."""
    claims: list[list[str]] = []
    join = group_script({})["JoinGroup"]
    assert isinstance(join, Answers)
    answer = join.result
    assert callable(answer)

    def joined(request: Any) -> Mapping[str, Any]:
        claimed = ConsumerProtocolSubscription.decode(request.protocols[0].metadata).owned_partitions
        claims.append(sorted(each.topic for each in claimed))
        return answer(request)

    joins_before: list[int] = []

    def evicted(_request: Any) -> Mapping[str, Any]:
        if len(claims) >= 2 and not joins_before:
            joins_before.append(len(claims))
            return {"error_code": UNKNOWN_MEMBER}
        return {"error_code": REBALANCING if len(claims) < 2 else 0}

    script = group_script({"JoinGroup": Answers(joined), "Heartbeat": Answers(evicted)})
    with ScriptedBroker(script, topics=TOPICS) as broker:
        settings = replace(member_settings(broker.address), assignor="cooperative-sticky")
        member = Membership(settings, "worker-0", lambda _: {}, lambda: None, lambda _: None)
        try:
            while not joins_before or len(claims) == joins_before[0] or member.partitions != EVERYTHING:
                member.poll(0.05)
        finally:
            member.close()

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
        while not revoked_in_poll:
            member.poll(0.05)
        while member.partitions != assigned:
            member.poll(0.05)

    assert set(revoked_in_poll) == {True}


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, ILLEGAL_GENERATION])
def test_a_cooperative_member_that_is_evicted_between_join_and_sync_has_lost_its_partitions(code: int) -> None:
    """Another member may have read these partitions meanwhile; this member's commit would move the offsets back."""
    happened: list[str] = []
    sync = group_script({})["SyncGroup"]
    assert isinstance(sync, Answers)
    in_sync = sync.result
    assert callable(in_sync)
    due: list[str] = []  # if the first join is slow, a script in a fixed order would evict it before it had partitions

    def once(what: str, code: int) -> dict[str, int] | None:
        return {"error_code": code} if due[:1] == [what] and due.pop(0) else None

    script = group_script(
        {
            "SyncGroup": Answers(lambda request: once("evicted", code) or in_sync(request)),
            "Heartbeat": Answers(lambda _: once("rebalance", REBALANCING) or {}),
        }
    )
    with ScriptedBroker(script, topics=TOPICS) as broker:
        settings = replace(member_settings(broker.address), assignor="cooperative-sticky")
        lost = partial(happened.append, "lost")
        member = Membership(settings, "worker-0", lambda _: {}, lost, lambda _: None)
        try:
            while member.partitions != EVERYTHING:
                member.poll(0.05)
            asked = broker.asked.count("SyncGroup")
            due += ["rebalance", "evicted"]
            while broker.asked.count("SyncGroup") < asked + 2 or member.partitions != EVERYTHING:
                member.poll(0.05)
        finally:
            member.close()

    assert happened == ["lost"]


@pytest.mark.parametrize(("answer", "is_done"), [({}, True), ({"orders": ILLEGAL_GENERATION}, False)])
def test_a_commit_at_a_revocation_counts_by_its_own_answer(answer: dict[str, int], is_done: bool) -> None:
    done: list[dict[object, int]] = []

    def on_revoked(partitions: set[object]) -> dict[Any, int]:
        if partitions:
            member._consumer._coordinator.coordinator_dead("it has moved")
        return OFFSETS if partitions else {}

    with scripted_group({"OffsetCommit": committed(answer)}, on_revoked=on_revoked, on_committed=done.append) as (
        broker,
        member,
    ):
        pass

    assert "OffsetCommit" in broker.asked
    assert done == ([OFFSETS] if is_done else [])
