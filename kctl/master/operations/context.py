"""What operations are carried out with, and what several of them need: names, and agents that carry out their part."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kctl.config import Config, HttpSection
from kctl.config.effects import changes
from kctl.config.forms import Effect
from kctl.errors import AgentRefused, ConfigError, KctlError, OperationRefused, OperationUnknown
from kctl.master.agents import Agents
from kctl.master.launch import launches
from kctl.master.members import Members
from kctl.master.operations.base import Report
from kctl.master.pauses import Pauses
from kctl.master.process_supervisor import Launch, ProcessSupervisor
from kctl.master.restart import SupervisionState
from kctl.master.supervisor import Supervisor
from kctl_agent.errors import BadParams
from kctl_agent.rpc.wire import JsonObject

__all__ = ["Context", "ended", "file_changed", "goes_on", "settled", "together"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.05
_UNDER_WAY = ("waiting", "running")
_UP = ("running", "idle", "paused", "throttled", None)
"""States that a worker reports when it has come up; None: an agent that reports none."""


async def _nothing() -> None:
    """There is nothing to be used."""


@dataclass(slots=True)
class Context:
    """Belongs to the master's event loop. `config` is the one in force: `scale` and `reload` replace it."""

    config: Config
    supervisor: Supervisor
    agents: Agents
    members: Members
    pauses: Pauses
    jars: Sequence[Path]
    worker_command: Sequence[str]
    reread: Callable[[], Config]
    """The configuration as it is on disk now; raises ConfigError."""
    use_http: Callable[[HttpSection], list[str]] = lambda _: []
    """Reads tokens and certificate again and has HTTP use them; returns what has changed. Raises ConfigError, and then
    nothing has."""
    prepare_groups: Callable[[Config], Callable[[], Awaitable[None]]] = lambda _: _nothing
    """Checks what `[exporter]` sets; returns what has it used. Raises ConfigError."""
    partitions: Callable[[str], frozenset[int]] = lambda _: frozenset()
    """The partitions of a topic that the brokers reported last; empty when that is not known."""
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _later: set[asyncio.Task[bool]] = field(default_factory=set)

    def later(self, work: Coroutine[object, object, object]) -> asyncio.Task[bool]:
        """Does it beside everything else, whatever becomes of its operation; what goes wrong is logged. Whether it was
        done."""
        task = asyncio.ensure_future(_or_logged(work))
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        return task

    def launches(self, config: Config, names: Iterable[str]) -> list[Launch]:
        return launches(config, self.jars, self.worker_command, names)

    def chosen(self, params: JsonObject) -> list[ProcessSupervisor]:
        """The process that is named, several with commas between their names, or all of them.

        Raises:
            BadParams: there is none of such a name, or neither a name nor `all` is given, or both.
        """
        name, everybody = params.get("name"), params.get("all", False)
        if (name is None) != bool(everybody):
            raise BadParams("give a name, or all")
        names = self.supervisor.names if name is None else dict.fromkeys(str(name).split(","))
        return [self.supervisor.process(each) for each in names]

    async def run_on(self, name: str, rpc: str, params: JsonObject, report: Report) -> JsonObject:
        """Has one agent carry out an operation; returns when it is done. Given up while it waits there, it is dropped.

        Raises:
            AgentRefused: it did not take it, or failed in it; the message has the reason.
            OperationUnknown: it does not report what became of it.
        """
        # Unique over restarts of the master too: an agent takes an operation of a known id for the same one.
        operation = f"{os.getpid()}-{next(self._ids)}-{asyncio.get_running_loop().time():.3f}"
        limit = {} if report.until == math.inf else {"until": report.until}
        is_accepted = False
        try:
            await self.agents.operate(name, rpc, {"operation": operation, **params, **limit}, _ANSWER_SECONDS)
            is_accepted = True
            while True:
                outcome = await self.agents.operate(name, "operation", {"operation": operation}, _ANSWER_SECONDS)
                if outcome.get("state") not in _UNDER_WAY:
                    break
                report(f"{name}: {outcome.get('text', '')}")
                await asyncio.sleep(_POLL_SECONDS)
        except (AgentRefused, OperationUnknown, asyncio.CancelledError) as error:
            if isinstance(error, AgentRefused) and not is_accepted:
                raise
            outcome = await self._withdrawn(name, operation)
            if outcome["state"] == "unknown" and not is_accepted:  # it never came, and will not be taken
                outcome["state"] = "failed"
            if outcome["state"] == "failed" and isinstance(error, asyncio.CancelledError):
                raise
        text = f"{name}: {outcome.get('text', '')}"
        if outcome.get("state") == "failed":
            raise AgentRefused(text)
        if outcome.get("state") != "done":
            raise OperationUnknown(text)
        return outcome

    async def _withdrawn(self, name: str, operation: str) -> JsonObject:
        """The outcome of an operation that is given up: it is cancelled unless the agent has begun it. Raises
        OperationUnknown."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + _ANSWER_SECONDS
        while (left := deadline - clock()) > 0:
            try:
                outcome = await self.agents.operate(name, "cancel", {"operation": operation}, left)
            except (AgentRefused, OperationUnknown) as error:
                raise OperationUnknown(f"{error}; what became of it is not known") from error
            if outcome.get("state") not in _UNDER_WAY:
                return outcome
            await asyncio.sleep(_POLL_SECONDS)
        raise OperationUnknown(f"{name} has begun it")

    async def send_pauses(self, name: str, report: Report) -> str:
        """Has a process read what the pauses leave; returns when it does, or when there is no need: a process that
        starts gets them at its start."""
        process = self.supervisor.process(name)
        while True:
            if process.state is SupervisionState.STARTING:
                report(f"{name} is starting")
                await process.until(lambda: process.state is not SupervisionState.STARTING)
            if process.state is not SupervisionState.RUNNING:
                return f"{name} is {process.state}"
            incarnation = process.incarnation
            try:
                await self.run_on(name, "pause", {"scopes": self.pauses.scopes(name)}, report)
            except (AgentRefused, OperationUnknown):
                if process.incarnation == incarnation and process.state is SupervisionState.RUNNING:
                    raise
            else:
                return name

    async def take_back(self, names: Iterable[str]) -> None:
        """Has processes read what the pauses leave now, after an operation about them that was given up. Raises
        OperationUnknown when one does not answer."""
        sent = {name: self.later(self.send_pauses(name, Report(lambda _: None))) for name in names}
        if sent:
            await asyncio.wait(sent.values(), timeout=_ANSWER_SECONDS)
        silent = [name for name, task in sent.items() if not (task.done() and task.result())]
        if silent:
            raise OperationUnknown(f"{', '.join(silent)} may stay paused; `kctl restart` ends that")


async def _or_logged(work: Coroutine[object, object, object]) -> bool:
    try:
        await work
    except KctlError as error:
        log.warning("action=afterwards: %s", error)
        return False
    return True


@contextmanager
def goes_on(what: str) -> Iterator[None]:
    """Around what no operation can take back. Raises OperationUnknown instead of being cancelled."""
    try:
        yield
    except asyncio.CancelledError as cancelled:
        raise OperationUnknown(what) from cancelled


async def ended(work: Iterable[Coroutine[object, object, T]]) -> list[T | BaseException]:
    """What each has come to, its error where it failed. Cancelled, all are, and each comes to its end."""
    tasks = [asyncio.ensure_future(each) for each in work]
    with suppress(asyncio.CancelledError):  # it is in what follows, unless all were done
        await asyncio.gather(*tasks, return_exceptions=True)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def together(work: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """All of it to its end; then what may still happen is raised, or the first error."""
    outcomes = await ended(work)
    errors = [each for each in outcomes if isinstance(each, BaseException)]
    unknown = [str(each) for each in errors if isinstance(each, OperationUnknown)]
    if unknown:
        raise OperationUnknown("; ".join(unknown))
    if errors:
        raise errors[0]
    return [each for each in outcomes if not isinstance(each, BaseException)]


async def file_changed(context: Context) -> str:
    """`; kctl.toml has changed since: …` when a process that starts does not get what the file sets now, else empty."""
    name = context.config.path.name
    try:
        found = changes(context.config, await asyncio.to_thread(context.reread))
    except ConfigError as error:
        return f"; {name} has changed since and cannot be used: {error}"
    # `kctl scale` changes counts and no file, and what needs a new master differs after a reload too.
    is_new = any(change.effect is not Effect.FLEET and not change.name.endswith(".count") for change in found)
    return f"; {name} has changed since: `kctl reload`" if is_new else ""


async def settled(context: Context, process: ProcessSupervisor, after: int, report: Report) -> None:
    """Returns when a process later than incarnation `after` has come up, by its supervisor's word and its own.

    Raises:
        OperationRefused: it was given up, or stopped.
    """
    while True:
        await process.until(
            lambda: (
                process.state in (SupervisionState.FATAL, SupervisionState.STOPPED)
                or (process.state is SupervisionState.RUNNING and process.incarnation > after)
            )
        )
        if process.state in (SupervisionState.FATAL, SupervisionState.STOPPED):
            why = process.status().last_error
            changed = await file_changed(context)
            raise OperationRefused(f"{process.name} is {process.state}" + (f": {why}" if why else "") + changed)
        beat = await context.agents.ping(process.name, 1.0)
        if beat is not None and beat.state in _UP:
            return
        report(f"{process.name} is {'silent' if beat is None else beat.state}")
        await asyncio.sleep(_POLL_SECONDS)
