"""What an attached agent may reply without breaking what the others replied."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kctl.master.reduction import COMMANDS, OFFSET_CHECKER, reduced
from kctl.reduce.base import Answer, BrokerSnapshot, Freshness
from kctl.status import Assessor, Owner, StatusRules
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.member_leader import MemberReply
from kctl_agent.replies.metadata import BrokerMetadata, BrokersReply, PartitionMetadata, TopicsReply
from kctl_agent.replies.partitions import PartitionReply
from kctl_agent.replies.topic_partition import TopicPartition
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.commands import COMMANDS as OF_AGENTS
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject
from tests.replies import outcome_of, parsed

FRESH = Freshness(0.0, 0.0, 2.0, None)
ODD: list[Any] = [None, "x", 7, -1.5, True, [], {}, [1], ["x"], [{}], {"a": 1}, 10**400, -(2**63)]


NOBODY = BrokerSnapshot()


def reply_of(rpc: str, partitions: int) -> JsonObject:
    rows = tuple(PartitionReply("orders", n, 0, 10, 12, 20, 10, None, 3, 0.0) for n in range(partitions))
    names = tuple(TopicPartition(row.topic, row.partition) for row in rows)
    snapshot = Snapshot(
        time.monotonic(),
        WorkerReply.starting("worker-0", "worker"),
        member=MemberReply("worker-0-id", "worker-0", 3, "worker-0-id", True, "group", "range", names),
        partitions=rows,
        brokers=BrokersReply((BrokerMetadata(1, "b1.example", 9092, None, True),)),
        topics=TopicsReply(tuple(PartitionMetadata("orders", n, 1, (1, 2), (1,), (2,)) for n in range(partitions))),
        storage=StorageReply("file:/data/storage.sqlite", 10, 0, 0, 0, 4096, 1000, age_seconds=0.0),
    )
    sent: JsonObject = json.loads(json.dumps(OF_AGENTS[rpc].answer(snapshot, {}, snapshot.published_at)))
    return sent


def odd_ones(value: Any) -> Iterator[Any]:
    """`value` with one part of it replaced, in every way."""
    yield from ODD
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: odd} for odd in odd_ones(part))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from ([*value[:i], odd, *value[i + 1 :]] for odd in odd_ones(part))


@pytest.mark.parametrize("rpc", sorted(COMMANDS.keys() & OF_AGENTS.keys()))
@pytest.mark.parametrize("partitions", [1, 2])
def test_whatever_one_agent_replies_the_others_are_reduced(rpc: str, partitions: int) -> None:
    command, good = COMMANDS[rpc], Answer("a", reply_of(rpc, partitions), 0.0)
    [expected] = parsed(rpc, [good])
    for odd in odd_ones(good.result):
        if not isinstance(odd, dict):
            continue
        for name in ("0", "b"):
            sent = outcome_of(good, Answer(name, odd, 0.0))
            outcome, of_host = command.decoded(sent), command.between_hosts().decoded(command.shortened(sent))
            assert of_host.failed == outcome.failed
            assert command.reduce(of_host.answers, NOBODY) == command.reduce(outcome.answers, NOBODY)
            assert expected in outcome.answers
            assert {failure.code for failure in outcome.failed} <= {"bad_result"}
            json.dumps(command.encoded(reduced(command, outcome, NOBODY, FRESH).result))


def test_what_one_agent_reports_of_a_partition_can_always_be_judged_and_kept() -> None:
    good = Answer("a", reply_of("offset_checker", 2), 0.0)
    owner = Owner("a", "running", 1.0)
    for odd in odd_ones(good.result["rows"][0]):
        outcome = OFFSET_CHECKER.decoded(outcome_of(good, Answer("b", {"rows": [odd]}, 0.0)))
        rows, assessor = OFFSET_CHECKER.reduce(outcome.answers, NOBODY).rows, Assessor(StatusRules())
        for now in (1.0, 2.0):
            assessor.assess(rows, lambda _: owner, now, now)
