"""Agents' replies, decoded and reduced by their command."""

import json
import time
from collections.abc import Iterable
from typing import Any

from msgspec import Raw

from kctl.master.reduction import COMMANDS
from kctl.reduce.base import Answer, BrokerSnapshot
from kctl.rows.workers import WorkerStatus
from kctl.rpc.fan_out import Failed, FanOut
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.fields import TopicPartition
from kctl_agent.replies.partitions import (
    BrokerMetadata,
    BrokersReply,
    MemberReply,
    PartitionMetadata,
    PartitionReply,
    PartitionsReply,
    TopicsReply,
)
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.commands import COMMANDS as OF_AGENTS
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject, parse_object


def raw(document: object) -> Raw:
    return Raw(json.dumps(document).encode())


def outcome_of(*replies: Answer[JsonObject], failed: Iterable[Failed] = ()) -> FanOut[Raw]:
    return FanOut([each.of(raw(each.result)) for each in replies], list(failed))


def plain(outcome: FanOut[Raw]) -> FanOut[JsonObject]:
    answers = [each.of(parse_object(bytes(each.result))) for each in outcome.answers]
    return FanOut(answers, outcome.failed, outcome.stopped)


def parsed(rpc: str, replies: Iterable[Answer[JsonObject]]) -> list[Answer[Any]]:
    outcome = COMMANDS[rpc].decoded(outcome_of(*replies))
    assert outcome.failed == []
    return outcome.answers


def reduced_json(rpc: str, replies: Iterable[Answer[JsonObject]], brokers: BrokerSnapshot | None = None) -> JsonObject:
    command = COMMANDS[rpc]
    return command.encoded(command.reduce(parsed(rpc, replies), brokers or BrokerSnapshot()))


def status_json(**more: Any) -> JsonObject:
    status = WorkerStatus("worker-0", "worker", "running", "running", 4711, 5.0, {}, None, None, "/log/worker-0.log")
    return {**encoded(status), **more}


NOBODY = BrokerSnapshot()


def reply_of(rpc: str, partitions: int) -> JsonObject:
    rows = tuple(PartitionReply("orders", n, 0, 10, 12, 20, 10, None, 3, 0.0) for n in range(partitions))
    names = tuple(TopicPartition(row.topic, row.partition) for row in rows)
    snapshot = Snapshot(
        time.monotonic(),
        WorkerReply.starting("worker-0", "worker"),
        replies=(
            MemberReply("worker-0-id", "worker-0", 3, "worker-0-id", True, "group", "range", names),
            PartitionsReply(rows),
            BrokersReply((BrokerMetadata(1, "b1.example", 9092, None, True),)),
            TopicsReply(tuple(PartitionMetadata("orders", n, 1, (1, 2), (1,), (2,)) for n in range(partitions))),
            StorageReply("file:/data/storage.sqlite", 10, 0, 0, 0, 4096, 1000, age_seconds=0.0),
        ),
    )
    sent: JsonObject = json.loads(json.dumps(OF_AGENTS[rpc].answer(snapshot, {}, snapshot.published_at)))
    return sent
