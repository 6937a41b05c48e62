"""The answers of the master: a live question to the fleet, reduced; and what it knows itself. No socket in here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from operator import attrgetter
from typing import Any

from msgspec import Raw

from kctl import __version__
from kctl.kafka.polls.broker_cache import BrokerCache
from kctl.master.events import EventFeed
from kctl.master.lag_summary import lag_glance
from kctl.master.members import Members
from kctl.master.reduction import COMMANDS, WORKERS, ReducedCommand, reduced, with_supervisor
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.master.verdict import Verdicts
from kctl.rows.workers import WorkerStatus
from kctl.rpc.fan_out import Failed, FanOut
from kctl_agent.errors import BadParams, UnknownMethod
from kctl_agent.replies.describe import Method, Param
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.messages import Request, printable_name, reducer_method, reply_ok, wire_method
from kctl_agent.rpc.wire import JsonObject

_NAME = "master"
_DEFAULT_DEADLINE_SECONDS = 2.0
_LONGEST_DEADLINE_SECONDS = 60.0
_OWN_SHARE = 0.1
"""Share of the caller's deadline, at most 0.1 s, kept for reducing and sending: an answer in time that names what is
missing is worth more than a complete one that nobody waits for any more."""
_seen = attrgetter("name", "desired", "state", "pid", "paused")
"""The parts of a process's status that are no measurements."""


_WORKER = Param("worker", "string", "Ask this worker only.")


def _served(method: str, rpc: str, summary: str) -> tuple[str, Method]:
    params = (_WORKER,) if rpc in COMMANDS else ()
    return method, Method(method, rpc, summary, params, int(_DEFAULT_DEADLINE_SECONDS * 1000), changes=False)


_OWN = dict(
    (
        _served(wire_method("ping"), "ping", "The master itself: name, pid, version."),
        _served(wire_method("describe"), "describe", "Every method that the master serves."),
        _served(wire_method("status"), "status", "The verdict, and what it was made of: lag, processes."),
        _served(wire_method("verdict"), "verdict", "How the fleet as a whole is doing, and why."),
    )
)
_ABOUT_FLEET = dict(
    _served(method, rpc, f"`{rpc}` of all workers, reduced to one result.")
    for rpc in COMMANDS
    for method in (wire_method(rpc), reducer_method(rpc))
)
_METHODS = _ABOUT_FLEET | _OWN
"""Served methods by their name on the wire; nothing else is served."""


class MasterService:
    """Answers questions. Belongs to one event loop."""

    def __init__(
        self,
        members: Members,
        broker_cache: BrokerCache,
        statuses: Callable[[], Iterable[WorkerStatus]],
        verdicts: Verdicts,
        feed: EventFeed,
    ) -> None:
        self._members = members
        self._broker_cache = broker_cache
        self._statuses = statuses
        self._verdicts = verdicts
        self._feed = feed

    async def answer(self, request: Request) -> JsonObject:
        """Returns the reply to one request, before its deadline. Raises UnknownMethod, BadParams."""
        method = _METHODS.get(request.method)
        if method is None or method.rpc != request.rpc:
            raise UnknownMethod(
                f"{printable_name(request.rpc)} has no method {printable_name(request.method)}; getDescribe lists all"
            )
        if request.method not in _OWN or (request.rpc in COMMANDS and request.params):
            return await self._ask_fleet(request)
        if request.params:
            raise BadParams(f"{request.rpc} takes no parameters")
        if request.rpc == "status":
            return await self._status(request)
        return reply_ok(request.id, self._own(request.rpc), _NAME, 0.0)

    def _own(self, rpc: str) -> JsonObject:
        if rpc == "ping":
            return {"name": _NAME, "pid": os.getpid(), "version": __version__}
        if rpc == "verdict":
            return self._verdict()
        return {"methods": [encoded(method) for _, method in sorted(_METHODS.items())]}

    def _verdict(self) -> JsonObject:
        document: JsonObject = encoded(self._verdicts.current())
        return document

    async def _status(self, request: Request) -> JsonObject:
        """Returns the verdict and the rows of one collection."""
        snapshot, verdict = await self._collected(_seconds(request)), self._verdicts.current()
        lag = await asyncio.to_thread(lag_glance, snapshot)
        if snapshot is None:
            result = {"rows": list(self._statuses()), "workers": [], "verdict": verdict, "lag": None}
            return reply_ok(request.id, encoded(result), _NAME, 0.0)
        rows, workers = list(snapshot.supervised), list(snapshot.workers.result.rows)
        age, completeness = self._verdicts.clock() - snapshot.taken_at, snapshot.workers.completeness()
        result = {"rows": rows, "workers": workers, "verdict": verdict, "lag": lag}
        return reply_ok(request.id, encoded(result), _NAME, age, **completeness)

    async def _collected(self, seconds: float) -> FleetSnapshot | None:
        """Returns the last collection; the next one, where the supervisor has seen a process change since."""
        latest = self._verdicts.latest()
        if latest is None or list(map(_seen, latest.supervised)) != list(map(_seen, self._statuses())):
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._feed.wait_beyond(self._feed.collections)
        return self._verdicts.latest()

    async def ask(self, request: Request) -> Reduced[Any]:
        """Returns what the fleet answers to one of `COMMANDS`, before the request's deadline. Raises BadParams."""
        command, outcome, is_of_all, statuses = await self._replies(request)
        return await asyncio.to_thread(self._reduced, command, outcome, is_of_all, statuses)

    async def _ask_fleet(self, request: Request) -> JsonObject:
        result, whole = await asyncio.to_thread(self._encoded, *await self._replies(request))
        completeness = {**whole.completeness(), "verdict": self._verdict()}
        return reply_ok(request.id, result, _NAME, whole.age_seconds, **completeness)

    async def _replies(
        self, request: Request
    ) -> tuple[ReducedCommand[Any, Any], FanOut[Raw], bool, list[WorkerStatus]]:
        """Returns the command, the agents' replies, whether all were asked, and the statuses of those that were."""
        deadline = asyncio.get_running_loop().time() + _seconds(request)
        only = _only_worker(request)
        sockets = await self._members.sockets()
        if only is not None:
            self._members.check_known(only)
            sockets = {only: sockets[only]}
        else:
            sockets = self._members.concerned(sockets, request.rpc)
        outcome = await self._members.ask(sockets, request.rpc, {}, deadline)
        if only is not None:
            outcome = _missed_if_stopped(outcome)
        statuses = [each for each in self._statuses() if only in (None, each.name)]
        return COMMANDS[request.rpc], outcome, only is None, statuses

    def _encoded(
        self, command: ReducedCommand[Any, Any], outcome: FanOut[Raw], is_of_all: bool, statuses: list[WorkerStatus]
    ) -> tuple[JsonObject, Reduced[Any]]:
        """Returns the encoded result and what it is encoded from, in one thread: see `_reduced`."""
        whole = self._reduced(command, outcome, is_of_all, statuses)
        return command.encoded(whole.result), whole

    def _reduced(
        self, command: ReducedCommand[Any, Any], outcome: FanOut[Raw], is_of_all: bool, statuses: list[WorkerStatus]
    ) -> Reduced[Any]:
        """Reduces replies to a result. Safe in any thread; of thousands of partitions it takes a while."""
        # One worker reports what it knows itself; the brokers' rows of other workers' partitions do not belong there.
        brokers = self._broker_cache.snapshot() if is_of_all else self._broker_cache.nothing_known
        whole = reduced(command, command.decoded(outcome), brokers, self._broker_cache.freshness())
        return with_supervisor(whole, statuses) if command is WORKERS else whole


def _seconds(request: Request) -> float:
    """Returns the time for a question, out of the request's deadline."""
    requested = (request.deadline_ms or _DEFAULT_DEADLINE_SECONDS * 1000) / 1000
    seconds = min(requested, _LONGEST_DEADLINE_SECONDS)
    return seconds - min(seconds * _OWN_SHARE, 0.1)


def _missed_if_stopped(outcome: FanOut[Raw]) -> FanOut[Raw]:
    """Counts stopped processes as missing: one asked by name does not answer; the error names that as the reason."""
    failed = [
        Failed(name, "stopped", f"it was stopped by request: `kctl start {name}` starts it") for name in outcome.stopped
    ]
    return FanOut(outcome.answers, [*outcome.failed, *failed])


def _only_worker(request: Request) -> str | None:
    for name, value in request.params.items():
        if name != "worker":
            raise BadParams(f"{request.rpc} takes no parameter {printable_name(name)}, only worker")
        if not isinstance(value, str):
            raise BadParams("parameter worker must be a name")
        return value
    return None
