"""Replies of agents to one result that can be trusted to be whole or to name what it lacks.

`COMMANDS` is the table: how a command's reply is parsed, reduced and shown. RPC and collector reduce by it alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from kctl.master.freshness import STALE_SECONDS, gaps, of_storage
from kctl.master.snapshot import Reduced
from kctl.reduce import (
    BrokerSnapshot,
    Freshness,
    PartitionRow,
    Reducer,
    block_size,
    describe,
    encoded,
    kafka_lag,
    member_leader,
    metadata_brokers,
    metadata_topics,
    offset_checker,
    ping,
    workers,
)
from kctl.reduce.offset_checker import Partitions
from kctl.rows.storage import StorageStats
from kctl.rpc import results
from kctl.rpc.fan_out import Failed, FanOut
from kctl_agent.wire import JsonObject

__all__ = [
    "BLOCK_SIZE",
    "COMMANDS",
    "MEMBER_LEADER",
    "METADATA_BROKERS",
    "METADATA_TOPICS",
    "OFFSET_CHECKER",
    "PING",
    "WORKERS",
    "Command",
    "reduced",
    "with_gaps",
]

R = TypeVar("R")
T = TypeVar("T")


def _itself(result: Any) -> Any:
    return result


@dataclass(frozen=True, slots=True)
class Command(Generic[R, T]):
    """What the fleet can be asked. `shown` is what of the reduced result is encoded."""

    name: str
    parse: results.Parser[R]
    reduce: Reducer[R, T]
    shown: Callable[[T], Any] = _itself

    def parsed(self, outcome: FanOut[JsonObject]) -> FanOut[R]:
        """Pure and safe in any thread; of thousands of partitions it takes a while."""
        return results.parsed(self.parse, outcome)

    def encoded(self, result: T) -> JsonObject:
        document: JsonObject = encoded(self.shown(result))
        return document


BLOCK_SIZE = Command("block_size", results.storage, block_size.reduce)
DESCRIBE = Command("describe", results.methods, describe.reduce)
KAFKA_LAG = Command("kafka_lag", results.partitions, offset_checker.reduce, kafka_lag.totals)
MEMBER_LEADER = Command("member_leader", results.member, member_leader.reduce)
METADATA_BROKERS = Command("metadata_brokers", results.brokers, metadata_brokers.reduce)
METADATA_TOPICS = Command("metadata_topics", results.topics, metadata_topics.reduce)
OFFSET_CHECKER = Command("offset_checker", results.partitions, offset_checker.reduce)
PING = Command("ping", results.ping, ping.reduce)
WORKERS = Command("workers", results.worker, workers.reduce)

COMMANDS: dict[str, Command[Any, Any]] = {
    command.name: command
    for command in (
        BLOCK_SIZE,
        DESCRIBE,
        KAFKA_LAG,
        MEMBER_LEADER,
        METADATA_BROKERS,
        METADATA_TOPICS,
        OFFSET_CHECKER,
        PING,
        WORKERS,
    )
}


def reduced(command: Command[R, T], outcome: FanOut[R], brokers: BrokerSnapshot, freshness: Freshness) -> Reduced[T]:
    """The reduced result with its completeness; of partitions as old as the oldest of them. Pure, safe in any
    thread."""
    result = command.reduce(outcome.answers, brokers)
    stale = {answer.sender: answer.age_seconds for answer in outcome.answers if answer.age_seconds > STALE_SECONDS}
    answered = tuple(answer.sender for answer in outcome.answers if answer.sender not in stale)
    failed = [
        *outcome.failed,
        *(Failed(name, "stale", f"what it published last is {age:.0f} s old") for name, age in stale.items()),
    ]
    rows = result.every if isinstance(result, Partitions) else ()
    ages = [*(answer.age_seconds for answer in outcome.answers), *(row.age_seconds for row in rows)]
    whole = Reduced(
        result=result,
        asked=tuple(sorted([*answered, *(failure.sender for failure in failed)])),
        answered=answered,
        failed=(*failed, *(of_storage(result) if isinstance(result, StorageStats) else ())),
        age_seconds=max(ages, default=None),
        stopped=outcome.stopped,
    )
    return with_gaps(command.name, whole, freshness, rows)


def with_gaps(rpc: str, whole: Reduced[T], freshness: Freshness, rows: Sequence[PartitionRow] = ()) -> Reduced[T]:
    """With what is stale or unknown of the brokers' offsets among the failed."""
    return replace(whole, failed=(*whole.failed, *gaps(rpc, freshness, rows)))
