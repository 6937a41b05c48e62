"""Reduces the agents' replies to one result, and lists silent agents and offsets that are stale or unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np
from msgspec import Raw, json
from msgspec.structs import astuple

from kctl.fields import shortened
from kctl.master.snapshot import Reduced
from kctl.reduce.base import BrokerSnapshot, Freshness, Reducer, union
from kctl.rows.columns import ABSENT, PartitionColumns, Reals
from kctl.rows.workers import GroupMembers, Pings, WorkerRow, Workers, WorkerStatus, with_statuses
from kctl.rpc.decode import as_struct
from kctl.rpc.fan_out import Failed, FanOut, typed
from kctl_agent.errors import UnknownMethod
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.partitions import MemberReply, PartitionReply, PartitionsReply
from kctl_agent.replies.questions import QUESTIONS, Question, named
from kctl_agent.replies.workers import PingReply, WorkerReply
from kctl_agent.rpc.wire import JsonObject

R = TypeVar("R")
T = TypeVar("T")
_ANY_AGE = Freshness(0.0, 0.0, inf, None)
STALE_SECONDS = 5.0  # maximum age of an agent's snapshot, a storage's count, and a main thread's turn
_MOST_NAMES = 5
_NO_AGES: Reals = np.empty(0)


def _whole(result: Any) -> Any:
    return result


@dataclass(frozen=True, slots=True)
class ReducedCommand(Generic[R, T]):
    """A command for agents, with the reducer of their replies. `shown` selects the part of the result to return."""

    name: str
    reply: type[R]
    reduce: Reducer[R, T]
    shown: Callable[[T], Any] = _whole
    short_reply: type[R] | None = None
    """The reply between hosts: an array per row takes a third of the bytes."""

    def decoded(self, outcome: FanOut[Raw]) -> FanOut[R]:
        """Decodes the replies. Call it in a thread: slow with thousands of partitions."""
        return typed(outcome, self.reply)

    def shortened(self, outcome: FanOut[Raw]) -> FanOut[Raw]:
        """Encodes rows as arrays if `short_reply` is set. Call it in a thread: slow with thousands of partitions."""
        if self.short_reply is None:
            return outcome
        known: FanOut[Any] = self.decoded(outcome)
        short = [each.of(Raw(json.encode({"rows": [*map(astuple, each.result.rows)]}))) for each in known.answers]
        return FanOut(short, known.failed, known.stopped)

    def between_hosts(self) -> ReducedCommand[R, T]:
        return self if self.short_reply is None else replace(self, reply=self.short_reply)

    def encoded(self, result: T) -> JsonObject:
        document: JsonObject = encoded(self.shown(result))
        return document


_ROWS = as_struct(PartitionsReply, rows=tuple[as_struct(PartitionReply), ...])  # type: ignore[misc]
_SHORT_ROWS = as_struct(PartitionsReply, rows=tuple[as_struct(PartitionReply, array_like=True), ...])  # type: ignore[misc]
_DECODED: Mapping[type, tuple[type, type | None]] = {
    PartitionsReply: (_ROWS, _SHORT_ROWS),
    WorkerReply: (WorkerRow, None),
}
"""Reply -> the types to decode replies of agents, and of hosts."""


def _command(name: str, question: Question) -> ReducedCommand[Any, Any]:
    reply = named(question.reply)
    kind, short = _DECODED.get(reply, (reply, None))
    reduce = named(question.reducer) if question.reducer else union(reply, question.rows, *question.key)
    return ReducedCommand(name, kind, reduce, named(question.view) if question.view else _whole, short)


COMMANDS = {name: _command(name, question) for name, question in QUESTIONS.items()}
BLOCK_SIZE: ReducedCommand[StorageReply, StorageReply] = COMMANDS["block_size"]
MEMBER_LEADER: ReducedCommand[MemberReply, GroupMembers] = COMMANDS["member_leader"]
OFFSET_CHECKER: ReducedCommand[PartitionsReply, PartitionColumns] = COMMANDS["offset_checker"]
PING: ReducedCommand[PingReply, Pings] = COMMANDS["ping"]
WORKERS: ReducedCommand[WorkerRow, Workers] = COMMANDS["workers"]


def reduced(
    command: ReducedCommand[R, T], outcome: FanOut[R], brokers: BrokerSnapshot, freshness: Freshness
) -> Reduced[T]:
    """Reduces replies to one result. Its age is that of the oldest reply or offset. Pure."""
    result = command.reduce(outcome.answers, brokers)
    stale = {answer.sender: answer.age_seconds for answer in outcome.answers if answer.age_seconds > STALE_SECONDS}
    answered = tuple(answer.sender for answer in outcome.answers if answer.sender not in stale)
    failed = [
        *outcome.failed,
        *(Failed(name, "stale", f"its last snapshot is {age:.0f} s old") for name, age in stale.items()),
    ]
    ages = [answer.age_seconds for answer in outcome.answers]
    of_partitions: tuple[Any, ...] = ()
    if isinstance(result, PartitionColumns):
        size = result.names.begins[1] if command.name == "kafka_lag" else None
        unknown = np.flatnonzero(result.lag[:size] == ABSENT).tolist()
        of_partitions = result.age_seconds[:size], [*map(result.names.name, unknown)]
        ages += result.age_seconds.tolist()
    whole = Reduced(
        result=result,
        asked=tuple(sorted([*answered, *(failure.sender for failure in failed)])),
        answered=answered,
        failed=(*failed, *(_of_storage(result) if isinstance(result, StorageReply) else ())),
        age_seconds=max(ages, default=None),
        stopped=outcome.stopped,
    )
    return with_gaps(command.name, whole, freshness, *of_partitions)


def with_gaps(rpc: str, whole: Reduced[T], freshness: Freshness, *of_partitions: Any) -> Reduced[T]:
    return replace(whole, failed=(*whole.failed, *gaps(rpc, freshness, *of_partitions)))


def gaps(rpc: str, brokers: Freshness, ages: Reals = _NO_AGES, unknown: Sequence[str] = ()) -> tuple[Failed, ...]:
    """Returns `Failed` entries for stale offsets and unknown lags. `ages` has the age of each partition's offsets.
    `unknown` names the partitions whose lag is unknown."""
    part_of_answer = QUESTIONS[rpc].age
    if not part_of_answer:
        return ()
    found = [Failed("brokers", "stale", text) for text in _stale(part_of_answer, brokers, ages)]
    if part_of_answer == "rows":
        found += [Failed("brokers", "unknown", text) for text in _unknown(brokers, unknown)]
    return tuple(found)


def _stale(part_of_answer: str, brokers: Freshness, ages: Reals) -> Iterator[str]:
    age, limit = brokers.age_seconds, brokers.stale_after_seconds
    because = "" if brokers.error is None else f": {brokers.error}"
    old = ages[ages > limit]
    if age is None and not len(ages):
        yield f"no broker has answered the master yet{because}"
    elif len(old):
        share = "" if len(old) == len(ages) else f" of {len(old)} of {len(ages)} partitions"
        yield f"the brokers' offsets{share} are up to {old.max():.0f} s old{because}"
    elif part_of_answer == "brokers" and age is not None and age > limit:
        yield f"the brokers' offsets are {age:.0f} s old{because}"


def _unknown(brokers: Freshness, partitions: Sequence[str]) -> Iterator[str]:
    if partitions:
        why = "no end was reported, or nothing is committed and no offset is known to begin at"
        yield f"the lag of {shortened(partitions, _MOST_NAMES)} is not known: {why}"
    for name in brokers.missing_topics:
        yield f"the lag of {name} is not known: the topic does not exist"


def _of_storage(storage: StorageReply) -> Iterator[Failed]:
    age = storage.age_seconds
    if storage.error is not None or (age is not None and age > STALE_SECONDS):
        counted = "could not be counted" if age is None else f"was last counted {age:.0f} s ago"
        yield Failed("storage", "stale", f"the storage {counted}" + (f": {storage.error}" if storage.error else ""))


def with_supervisor(reduced: Reduced[Workers], statuses: Iterable[WorkerStatus]) -> Reduced[Workers]:
    """Adds the supervisor's status to each worker, and a row for each worker whose agent is silent. Pure."""
    rows = sorted(with_statuses(reduced.result.rows, statuses), key=attrgetter("name"))
    return replace(reduced, result=Workers(tuple(rows)))


class CachedCommand(Generic[R, T]):
    """The last result of a command. `is_settled` returns False for a result that should not be reused."""

    def __init__(self, command: ReducedCommand[R, T], is_settled: Callable[[T], bool] = lambda _: True) -> None:
        self.command = command
        self._is_settled = is_settled
        self._result: Reduced[T] | None = None
        self._shown_by: object = None
        self._asked_at = 0.0

    def is_due(self, shown_by: object, now: float, longest_seconds: float) -> bool:
        """Whether to ask the agents again: if the result is incomplete, not settled or `longest_seconds` old, or if
        `shown_by` has changed. `shown_by` is any value that changes when the answer may have changed."""
        result = self._result
        return (
            result is None
            # An agent of an older release may not know the command. Asking again would not help.
            or any(each.code != UnknownMethod.code for each in result.failed)
            or not self._is_settled(result.result)
            or self._shown_by != shown_by
            or now - self._asked_at >= longest_seconds
        )

    def keep(self, outcome: FanOut[Raw], shown_by: object, now: float) -> None:
        """Reduces replies and keeps the result. Call it in a thread: slow with thousands of partitions."""
        self._result = reduced(self.command, self.command.decoded(outcome), BrokerSnapshot(), _ANY_AGE)
        self._shown_by, self._asked_at = shown_by, now

    def at(self, now: float) -> Reduced[T]:
        assert self._result is not None
        age = self._result.age_seconds
        return replace(self._result, age_seconds=None if age is None else age + now - self._asked_at)
