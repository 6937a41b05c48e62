"""Answers requests for information. Uses the agents' replies or what the master knows."""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from msgspec import Raw, Struct

from kctl import __version__
from kctl.fields import host_and_name
from kctl.groups.broker_cache import BrokerCache
from kctl.hosts.hosts import HostReplies, Hosts, HostsOutcome, JudgedPartitions
from kctl.hosts.status import joined_status, joined_verdict, statuses_of
from kctl.master.events import EventFeed
from kctl.master.members import Members
from kctl.master.reduction import COMMANDS, OFFSET_CHECKER, WORKERS, ReducedCommand, reduced, with_supervisor
from kctl.master.snapshot import NO_ADVICE, FleetSnapshot, Reduced
from kctl.master.verdict import Verdicts
from kctl.rows.partitions import WORST, LagGlance, WorstPartition
from kctl.rows.verdict import Verdict
from kctl.rows.workers import StatusAnswer, Statuses, Workers, WorkerStatus
from kctl.rpc.decode import decoded
from kctl.rpc.fan_out import Failed, FanOut
from kctl.status import Assessment, Status
from kctl_agent.errors import BadParams, Busy, UnknownMethod
from kctl_agent.paths import MASTER_NAME
from kctl_agent.replies.describe import Method, Param
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.messages import Request, printable_name, reducer_method, reply_ok, wire_method
from kctl_agent.rpc.params import check_params, listed, param
from kctl_agent.rpc.wire import JsonObject

DEFAULT_DEADLINE_SECONDS = 2.0
_LONGEST_DEADLINE_SECONDS = 60.0
_OWN_SHARE = 0.1
"""Reserved for reducing and sending, at most 0.1 s: a partial answer in time is better than a complete late one."""
_SENDING_SHARE = 0.2  # reserved for sending the answer to another host, at most 0.2 s
_FOR_OTHERS_AT_A_TIME = 64
T = TypeVar("T")
_seen = attrgetter("name", "desired", "state", "pid", "paused")


@dataclass(frozen=True, slots=True)
class _Scope:
    worker: str | None = param("Ask only this worker; on another host: HOST/NAME.", default=None)
    host: str | None = param("Ask only this host.", default=None)
    local: bool | None = param("Ask no other host.", default=None)

    def is_of_this_host(self, hosts: Hosts | None) -> bool:
        if self.local or hosts is None:
            return bool(self.local) or self.host is None
        return self.host == hosts.me.name


_ONLY = listed(_Scope)


def methods(
    name: Callable[[str], str], *rows: tuple[str, str, tuple[Param, ...]], changes: bool = False
) -> dict[str, Method]:
    deadline_ms = int(DEFAULT_DEADLINE_SECONDS * 1000)
    return {name(rpc): Method(name(rpc), rpc, summary, params, deadline_ms, changes) for rpc, summary, params in rows}


_OWN = methods(
    wire_method,
    ("ping", "The master itself: name, pid, version.", _ONLY),
    ("describe", "Every method that the master serves.", _ONLY),
    ("status", "The verdict, with the lag and the processes behind it.", _ONLY[1:]),
    ("verdict", "The verdict on the fleet, and its reason.", ()),
    ("advice", "How many workers and sinkers the fleet needs, and why.", ()),
    ("hosts", "The hosts of the fleet, and which are silent or gone.", ()),
)
_OF_ALL = [(rpc, f"`{rpc}` of all workers, reduced to one result.", _ONLY) for rpc in COMMANDS]
METHODS = methods(wire_method, *_OF_ALL) | methods(reducer_method, *_OF_ALL) | _OWN
"""All served methods by name, besides the router's."""


class _Replies(NamedTuple):
    command: ReducedCommand[Any, Any]
    outcome: FanOut[Raw]
    is_of_all: bool
    statuses: list[WorkerStatus]
    verdict: Verdict
    others: HostsOutcome = HostsOutcome()


@dataclass(slots=True, eq=False)
class MasterService:
    _members: Members
    _broker_cache: BrokerCache
    _statuses: Callable[[], Iterable[WorkerStatus]]
    _verdicts: Verdicts
    _feed: EventFeed
    _hosts: Hosts | None = None
    _for_others: int = 0

    async def answer(self, request: Request) -> JsonObject:
        """Answers a request before its deadline. Raises UnknownMethod, BadParams."""
        method = METHODS.get(request.method)
        if method is None or method.rpc != request.rpc:
            raise UnknownMethod(
                f"{printable_name(request.rpc)} has no method {printable_name(request.method)}; getDescribe lists all"
            )
        check_params(request.rpc, method.params, request.params)
        if request.method not in _OWN or (request.rpc in COMMANDS and request.params):
            return await self._ask_fleet(request)
        if request.rpc == "status":
            return await self._status(request)
        return reply_ok(request.id, self._own(request.rpc), MASTER_NAME, 0.0)

    def _own(self, rpc: str) -> JsonObject:
        if rpc == "ping":
            return {"name": MASTER_NAME, "pid": os.getpid(), "version": __version__}
        known: Struct
        if rpc == "verdict":
            known = self._verdicts.current()
        elif rpc == "advice":
            latest = self._verdicts.latest()
            known = NO_ADVICE if latest is None else latest.advice
        else:
            known = self._known_hosts().answer()
        document: JsonObject = encoded(known)
        return document

    async def _status(self, request: Request) -> JsonObject:
        scope, seconds = _scope(request), _seconds(request)
        if scope.is_of_this_host(self._hosts):
            status, age, workers = await self._own_status(seconds)
            return reply_ok(request.id, encoded(status), MASTER_NAME, age, **_completeness(workers))
        found, others = await self._asked("status", scope, seconds, partial(self._own_status, seconds))
        own, age, workers = (None, 0.0, None) if found is None else found
        me = self._known_hosts().me.name
        joined = await asyncio.to_thread(joined_status, own, me, others, time.time())
        failed = [each.to_json() for each in others.joined(FanOut([], []), me).failed]
        completeness = _completeness(workers)
        completeness["complete"] = completeness.get("complete", True) and not failed
        completeness["failed"] = [*completeness.get("failed", ()), *failed]
        age = max([age, *(since + of_host.age_seconds for of_host, since in others.replies)])
        return reply_ok(request.id, encoded(joined), MASTER_NAME, age, **completeness)

    async def _own_status(self, seconds: float) -> tuple[StatusAnswer, float, Reduced[Workers] | None]:
        snapshot, verdict = await self._collected(seconds), self._verdicts.current()
        lag = await asyncio.to_thread(lag_glance, snapshot)
        if snapshot is None:
            return StatusAnswer(tuple(self._statuses()), verdict), 0.0, None
        workers = snapshot.workers
        age = self._verdicts.clock() - snapshot.taken_at
        storage = snapshot.block_size.result
        return StatusAnswer(snapshot.supervised, verdict, workers.result.rows, lag, storage), age, workers

    async def _collected(self, seconds: float) -> FleetSnapshot | None:
        latest = self._verdicts.latest()
        # If a process has changed since the snapshot, for example after `kctl stop`, wait for the next one.
        if latest is None or list(map(_seen, latest.supervised)) != list(map(_seen, self._statuses())):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._feed.wait_beyond(self._feed.collections)
        return self._verdicts.latest()

    async def ask(self, request: Request) -> Reduced[Any]:
        """Sends one of `COMMANDS` to the fleet's agents. Returns before the request's deadline. Raises BadParams."""
        return await asyncio.to_thread(self._reduced, await self._replies(request))

    async def _ask_fleet(self, request: Request) -> JsonObject:
        result, whole = await asyncio.to_thread(self._encoded, await self._replies(request))
        completeness = {**whole.completeness(), "verdict": encoded(whole.verdict)}
        return reply_ok(request.id, result, MASTER_NAME, whole.age_seconds, **completeness)

    async def _replies(self, request: Request) -> _Replies:
        scope, seconds = _scope(request), _seconds(request)
        command = COMMANDS[request.rpc]
        if scope.is_of_this_host(self._hosts):
            outcome, statuses = await self._own_replies(request.rpc, scope.worker, seconds)
            return _Replies(command, outcome, scope.worker is None, statuses, self._verdicts.current())
        me, ask_own = self._known_hosts().me.name, partial(self._own_replies, request.rpc, scope.worker, seconds)
        found, others = await self._asked(request.rpc, scope, seconds, ask_own)
        own, own_statuses = found or (FanOut([], []), [])
        statuses = [*statuses_of(me, own_statuses)]
        if command is WORKERS:
            for each, age in others.replies:
                statuses += statuses_of(each.host, decoded(Statuses, each.status).rows, age)
        is_of_all = scope.worker is None and scope.host is None
        outcome = others.joined(await asyncio.to_thread(command.shortened, own), me)
        verdicts = {each.host: each.verdict for each in others.heard if each.verdict is not None}
        if scope.host is None:
            verdicts[me] = self._verdicts.current()
        verdict = joined_verdict(verdicts, others.failed, time.time())
        return _Replies(command.between_hosts(), outcome, is_of_all, statuses, verdict, others)

    async def _asked(
        self, rpc: str, scope: _Scope, seconds: float, ask_own: Callable[[], Coroutine[Any, Any, T]]
    ) -> tuple[T | None, HostsOutcome]:
        asked = self._known_hosts().ask(rpc, seconds, host=scope.host, worker=scope.worker or "")
        return (None, await asked) if scope.host is not None else await asyncio.gather(ask_own(), asked)

    async def _own_replies(self, rpc: str, only: str | None, seconds: float) -> tuple[FanOut[Raw], list[WorkerStatus]]:
        deadline = asyncio.get_running_loop().time() + seconds
        sockets = await self._members.sockets()
        if only is not None:
            self._members.check_known(only)
            sockets = {only: sockets[only]}
        else:
            sockets = self._members.concerned(sockets, rpc)
        outcome = await self._members.ask(sockets, rpc, {}, deadline)
        if only is not None:
            outcome = _missed_if_stopped(outcome)
        return outcome, [each for each in self._statuses() if only in (None, each.name)]

    async def for_other_host(self, rpc: str, only: str | None, seconds: float) -> HostReplies:
        """Collects this host's replies for another host's master. Raises UnknownMethod, BadParams, Busy."""
        if self._for_others >= _FOR_OTHERS_AT_A_TIME:
            raise Busy(f"{_FOR_OTHERS_AT_A_TIME} questions of other hosts are in progress already")
        self._for_others += 1
        try:
            return await self._for_other_host(rpc, only, seconds - min(seconds * _SENDING_SHARE, _SENDING_SHARE))
        finally:
            self._for_others -= 1

    async def _for_other_host(self, rpc: str, only: str | None, seconds: float) -> HostReplies:
        hosts = self._known_hosts()
        if rpc == "status":
            status, age, workers = await self._own_status(seconds)
            return hosts.replies(FanOut([], [] if workers is None else [*workers.failed]), status, age_seconds=age)
        if rpc not in COMMANDS:
            raise UnknownMethod(f"{printable_name(rpc)} is not a command that other hosts may ask")
        outcome, statuses = await self._own_replies(rpc, only, seconds)
        outcome = await asyncio.to_thread(COMMANDS[rpc].shortened, outcome)
        beside: Struct | None = Statuses(tuple(statuses)) if rpc == WORKERS.name else None
        if rpc == OFFSET_CHECKER.name:
            beside = await asyncio.to_thread(_judged, self._verdicts.latest())
        return hosts.replies(outcome, beside, self._verdicts.current())

    def _known_hosts(self) -> Hosts:
        if self._hosts is None:
            raise BadParams("this fleet runs on one host: hosts.url is not set")
        return self._hosts

    def _encoded(self, replies: _Replies) -> tuple[JsonObject, Reduced[Any]]:
        whole = self._reduced(replies)
        document = replies.command.encoded(whole.result)
        if replies.command.name == OFFSET_CHECKER.name:
            document["stale_after_seconds"] = self._broker_cache.freshness().stale_after_seconds
        return document, whole

    def _reduced(self, replies: _Replies) -> Reduced[Any]:
        command, outcome, is_of_all, statuses, verdict, others = replies
        # One worker reports only what it knows; the brokers' rows of other workers' partitions do not belong there.
        brokers = self._broker_cache.snapshot() if is_of_all else self._broker_cache.nothing_known
        whole = reduced(command, command.decoded(outcome), brokers, self._broker_cache.freshness())
        judged = _judged_by(others) if command.name == OFFSET_CHECKER.name else {}
        whole = replace(whole, verdict=verdict, judged=judged)
        return with_supervisor(whole, statuses) if command is WORKERS else whole


def _judged(snapshot: FleetSnapshot | None) -> JudgedPartitions:
    if snapshot is None:
        return JudgedPartitions()
    both = zip(snapshot.partitions, snapshot.own_assessments, strict=True)
    return JudgedPartitions(tuple((row.topic, row.partition, each) for row, each in both if row.worker is not None))


def _judged_by(others: HostsOutcome) -> dict[tuple[str, int], Assessment]:
    rows = (row for each in others.heard for row in decoded(JudgedPartitions, each.status).rows)
    return {(topic, partition): assessment for topic, partition, assessment in rows}


def _completeness(workers: Reduced[Workers] | None) -> JsonObject:
    return {} if workers is None else workers.completeness()


def _seconds(request: Request) -> float:
    requested = (request.deadline_ms or DEFAULT_DEADLINE_SECONDS * 1000) / 1000
    seconds = min(requested, _LONGEST_DEADLINE_SECONDS)
    return seconds - min(seconds * _OWN_SHARE, 0.1)


def _missed_if_stopped(outcome: FanOut[Raw]) -> FanOut[Raw]:
    # The caller asked a stopped agent by name, so the agent counts as failed, with the reason.
    failed = [
        Failed(name, "stopped", f"it was stopped by request: `kctl start {name}` starts it") for name in outcome.stopped
    ]
    return FanOut(outcome.answers, [*outcome.failed, *failed])


def _scope(request: Request) -> _Scope:
    scope = _Scope(**request.params)
    if scope.worker is None:
        return scope
    host, worker = host_and_name(scope.worker)
    if not host:
        return scope if scope.host is not None else replace(scope, local=True)
    if scope.host is not None or scope.local:
        raise BadParams("parameter worker has the host already: leave out host and local")
    return replace(scope, worker=worker, host=host)


_WELL = frozenset({Status.ELSEWHERE, Status.IDLE, Status.OK, Status.PAUSED})


def lag_glance(snapshot: FleetSnapshot | None) -> LagGlance | None:
    """Summarizes the lag in a snapshot. Call it in a thread, because it is slow with thousands of partitions."""
    if snapshot is None:
        return None
    lag = snapshot.recent_lag
    rated = (
        (-assessment.status.severity, -(row.remaining_count or 0), number)
        for number, (row, assessment) in enumerate(zip(snapshot.partitions, snapshot.own_assessments, strict=True))
        if assessment.status not in _WELL
        or (assessment.status is not Status.ELSEWHERE and (row.remaining_count or row.stored_messages))
    )
    worst = tuple(_worst(snapshot, number) for *_, number in nsmallest(WORST, rated))
    age = snapshot.offset_checker.result.oldest()[0]
    group = snapshot.group_assessment
    seconds = None if lag.total is None else group.lag_seconds
    oldest = group.oldest_unhandled_seconds
    return LagGlance(len(lag.unknown), lag.total, seconds, age, worst, oldest, lag.behind_transaction)


def _worst(snapshot: FleetSnapshot, number: int) -> WorstPartition:
    row, assessment = snapshot.partitions[number], snapshot.assessments[number]
    known = row.remaining_count, assessment.lag_seconds, assessment.oldest_unhandled_seconds
    if (row.age_seconds or 0.0) > snapshot.stale_after_seconds:
        known = None, None, None
    return WorstPartition(row.topic, row.partition, assessment.status.value, assessment.reason, *known)
