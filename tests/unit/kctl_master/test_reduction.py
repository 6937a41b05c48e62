"""What an attached agent may reply without breaking what the others replied."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kctl.master.reduction import COMMANDS as MASTER_COMMANDS
from kctl.master.reduction import OFFSET_CHECKER, reduced
from kctl.reduce import REDUCERS, Answer, BrokerSnapshot, Freshness, partition_rows
from kctl.rpc.fan_out import FanOut
from kctl.status import Assessor, Owner, Rules
from kctl_agent.commands import COMMANDS
from kctl_agent.snapshot import (
    BrokerMetadata,
    MemberInfo,
    PartitionMetadata,
    PartitionStats,
    Snapshot,
    StorageUsage,
)
from kctl_agent.wire import JsonObject

FRESH = Freshness(0.0, 0.0, 2.0, None)
ODD: list[Any] = [None, "x", 7, -1.5, True, [], {}, [1], ["x"], [{}], {"a": 1}, 10**400, -(2**63)]


NOBODY = BrokerSnapshot()


def reply_of(rpc: str, partitions: int) -> JsonObject:
    now = time.monotonic()
    snapshot = Snapshot(
        *("worker-0", "worker", "running", now, now, now),
        member=MemberInfo("group", "range", "worker-0-id", 3, "worker-0-id"),
        partitions=tuple(PartitionStats("orders", n, 0, 10, 12, 20, None, now) for n in range(partitions)),
        brokers=(BrokerMetadata(1, "b1.example", 9092, None, True),),
        topics=tuple(PartitionMetadata("orders", n, 1, (1, 2), (1,), (2,)) for n in range(partitions)),
        storage=StorageUsage("file:/data/storage.sqlite", 10, 0, 0, 4096, 1000),
    )
    sent: JsonObject = json.loads(json.dumps(COMMANDS[rpc].answer(snapshot, {}, now)))
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


@pytest.mark.parametrize("rpc", sorted(REDUCERS.keys() & COMMANDS.keys()))
@pytest.mark.parametrize("partitions", [1, 2])
def test_whatever_one_agent_replies_the_others_are_reduced(rpc: str, partitions: int) -> None:
    command, good = MASTER_COMMANDS[rpc], Answer("a", reply_of(rpc, partitions), 0.0)
    for odd in odd_ones(good.result):
        if not isinstance(odd, dict):
            continue
        for name in ("0", "b"):
            outcome = command.parsed(FanOut([good, Answer(name, copy.deepcopy(odd), 0.0)], []))
            assert Answer("a", command.parse("a", good.result), 0.0) in outcome.answers
            assert {failure.code for failure in outcome.failed} <= {"bad_result"}
            json.dumps(command.encoded(reduced(command, outcome, NOBODY, FRESH).result))


@pytest.mark.shows("whatever one agent reports of a partition, the others' rows are shown")
def test_what_one_agent_reports_of_a_partition_can_always_be_judged_and_kept() -> None:
    good = Answer("a", reply_of("offset_checker", 2), 0.0)
    owner = Owner("a", "running", 1.0)
    for odd in odd_ones(good.result["rows"][0]):
        outcome = OFFSET_CHECKER.parsed(FanOut([good, Answer("b", {"rows": [odd]}, 0.0)], []))
        [rows, _], assessor = partition_rows(outcome.answers, NOBODY), Assessor(Rules())
        for now in (1.0, 2.0):
            assessor.assess(rows, lambda _: owner, now, now)
