"""The parts of the master that operations use."""

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

from msgspec import Raw

from kctl.config.effects import changes
from kctl.config.forms import Effect
from kctl.config.sections import Config, HttpSection
from kctl.errors import AgentRefused, ConfigError, KctlError, OperationRefused, OperationUnknown
from kctl.hosts.hosts import Hosts
from kctl.master.launch import launches, supervision_policies
from kctl.master.members import ANSWER_SECONDS, Agents, Members
from kctl.master.operations.base import Report
from kctl.master.pauses import Pause, Pauses
from kctl.master.process_supervisor import Launch, ProcessSupervisor
from kctl.master.reduction import OFFSET_CHECKER
from kctl.master.restart import SupervisionState
from kctl.master.supervisor import Supervisor
from kctl.reduce.base import BrokerSnapshot
from kctl.rpc.fan_out import FanOut, typed
from kctl_agent.replies.partitions import PartitionsReply
from kctl_agent.rpc.wire import JsonObject

T = TypeVar("T")


@contextmanager
def goes_on(what: str) -> Iterator[None]:
    """Wraps a wait. If the wait is cancelled, raises OperationUnknown(`what`), because the awaited change goes on."""
    try:
        yield
    except asyncio.CancelledError as cancelled:
        raise OperationUnknown(what) from cancelled


async def ended(work: Iterable[Coroutine[object, object, T]]) -> list[T | BaseException]:
    """Runs all coroutines and returns each result or error. If cancelled, cancels them and waits until they end."""
    tasks = [asyncio.ensure_future(each) for each in work]
    with suppress(asyncio.CancelledError):  # the next line returns it, unless all were done
        await asyncio.gather(*tasks, return_exceptions=True)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def together(work: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Runs all coroutines to the end and returns the results. Raises the first error, but prefers OperationUnknown."""
    outcomes = await ended(work)
    errors = [each for each in outcomes if isinstance(each, BaseException)]
    unknown = [str(each) for each in errors if isinstance(each, OperationUnknown)]
    if unknown:
        raise OperationUnknown("; ".join(unknown))
    if errors:
        raise errors[0]
    return [each for each in outcomes if not isinstance(each, BaseException)]


log = logging.getLogger(__name__)

_OWNERS_SECONDS = 5.0
_POLL_SECONDS = 0.05
_UNDER_WAY = ("waiting", "running")
_UP = ("running", "idle", "paused", "throttled", None)
"""States of a worker that has come up; None: an agent that reports none."""


async def _nothing() -> None: ...


@dataclass(slots=True)
class Context:
    """The parts of the master on which operations act, on its event loop. `scale` and `reload` change `config`."""

    config: Config
    supervisor: Supervisor
    agents: Agents
    members: Members
    pauses: Pauses
    jars: Sequence[Path]
    worker_command: Sequence[str]
    reread: Callable[[], Config]  # reads the configuration from disk; raises ConfigError
    use_http: Callable[[HttpSection], list[str]] = lambda _: []
    """Renews HTTP's tokens and certificate; returns the changes. Raises ConfigError and then changes nothing."""
    prepare_groups: Callable[[Config], Callable[[], Awaitable[None]]] = lambda _: _nothing
    """Checks `[exporter]`; returns a function that applies it. Raises ConfigError."""
    partitions: Callable[[str], frozenset[int]] = lambda _: frozenset()
    hosts: Hosts | None = None
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _later: set[asyncio.Task[bool]] = field(default_factory=set)

    def later(self, work: Coroutine[object, object, object]) -> asyncio.Task[bool]:
        """Runs `work` in the background, even after the operation has ended. The task returns whether it succeeded."""
        task = asyncio.ensure_future(_or_logged(work))
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        return task

    def launches(self, config: Config, names: Iterable[str]) -> list[Launch]:
        return launches(config, self.jars, self.worker_command, names)

    async def run_on(self, name: str, rpc: str, params: JsonObject, report: Report) -> JsonObject:
        """Executes an operation on one agent and returns its outcome. If cancelled, withdraws the operation unless the
        agent has begun it. Raises AgentRefused if the agent rejects the operation or reports a failure. Raises
        OperationUnknown if the outcome is unknown."""
        # Unique across restarts of the master, because an agent does not repeat an operation of a known id.
        operation = f"{os.getpid()}-{next(self._ids)}-{asyncio.get_running_loop().time():.3f}"
        limit = {} if report.until == math.inf else {"until": report.until}
        is_accepted = False
        try:
            await self.agents.operate(name, rpc, {"operation": operation, **params, **limit})
            is_accepted = True
            while True:
                outcome = await self.agents.operate(name, "operation", {"operation": operation})
                if outcome.get("state") not in _UNDER_WAY:
                    break
                report(f"{name}: {outcome.get('text', '')}")
                await asyncio.sleep(_POLL_SECONDS)
        except (AgentRefused, OperationUnknown, asyncio.CancelledError) as error:
            if isinstance(error, AgentRefused) and not is_accepted:
                raise
            outcome = await self._withdrawn(name, operation)
            if outcome["state"] == "unknown" and not is_accepted:  # the agent never received it, and will not accept it
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
        clock = asyncio.get_running_loop().time
        deadline = clock() + ANSWER_SECONDS
        while (left := deadline - clock()) > 0:
            try:
                outcome = await self.agents.operate(name, "cancel", {"operation": operation}, left)
            except (AgentRefused, OperationUnknown) as error:
                raise OperationUnknown(f"{error}; the outcome is unknown") from error
            if outcome.get("state") not in _UNDER_WAY:
                return outcome
            await asyncio.sleep(_POLL_SECONDS)
        raise OperationUnknown(f"{name} has begun the operation")

    async def send_pauses(self, name: str, report: Report) -> str:
        """Sends the process `name` its pauses, waits until they apply, and returns `name`. If the process is not
        running, only returns its state in words. The process gets its pauses when it starts."""
        process = self.supervisor.process(name)
        while True:
            if process.state is SupervisionState.STARTING:
                report(f"{name} is starting")
                await process.until(lambda: process.state is not SupervisionState.STARTING)
            if process.state is not SupervisionState.RUNNING:
                return f"{name} is {process.status().state_words}"
            incarnation = process.incarnation
            try:
                await self.run_on(name, "pause", {"scopes": self.pauses.scopes(name)}, report)
            except (AgentRefused, OperationUnknown):
                if process.incarnation == incarnation and process.state is SupervisionState.RUNNING:
                    raise
            else:
                return name

    async def send_all_pauses(self, worker: str | None, report: Report, before: list[Pause]) -> str:
        """Sends the stored pauses to `worker` (None: to all processes except the engine). If sending fails, restores
        the pauses in `before`, and sends them."""
        kinds = self.supervisor.kinds()
        names = [name for name in self.supervisor.names if kinds[name] != "engine"] if worker is None else [worker]
        try:
            done = await together(self.send_pauses(name, report) for name in names)
        except BaseException:
            try:
                self.pauses.replace(before)
            except OperationRefused as error:
                raise OperationUnknown(str(error)) from error
            await self.take_back(names)
            raise
        return f"carried out by {', '.join(done) or 'no process, because none is running'}"

    async def take_back(self, names: Iterable[str]) -> None:
        """After a failure, sends processes their stored pauses again. Raises OperationUnknown unless all apply them."""
        sent = {name: self.later(self.send_pauses(name, Report(lambda _: None))) for name in names}
        if sent:
            await asyncio.wait(sent.values(), timeout=ANSWER_SECONDS)
        silent = [name for name, task in sent.items() if not (task.done() and task.result())]
        if silent:
            raise OperationUnknown(f"{', '.join(silent)} may stay paused; `kctl restart` ends that")

    async def owners(self, topic: str) -> dict[int, str | None]:
        return {
            row.partition: answer.sender
            for answer in typed(await self._offsets(), PartitionsReply).answers
            for row in answer.result.rows
            if row.topic == topic
        }

    async def owners_on_hosts(self, topic: str) -> tuple[dict[int, str | None], list[str]]:
        assert self.hosts is not None
        own, others = await asyncio.gather(self._offsets(), self.hosts.ask("offset_checker", _OWNERS_SECONDS))
        joined = others.joined(OFFSET_CHECKER.shortened(own), self.hosts.me.name)
        outcome = OFFSET_CHECKER.between_hosts().decoded(joined)
        rows = OFFSET_CHECKER.reduce(outcome.answers, BrokerSnapshot()).of_group(0)
        missing = [each.message for each in others.failed]
        return {row.partition: row.worker for row in rows if row.topic == topic}, missing

    async def _offsets(self) -> FanOut[Raw]:
        deadline = asyncio.get_running_loop().time() + _OWNERS_SECONDS
        sockets = self.members.concerned(await self.members.sockets(), "ping")
        return await self.members.ask(sockets, "offset_checker", {}, deadline)

    def use(self, config: Config, launches: Iterable[Launch]) -> None:
        self.config = config
        self.supervisor.reconfigure(launches, supervision_policies(config))

    async def file_changed(self) -> str:
        """Returns a note if the configuration file cannot be used or has changed since it was loaded, otherwise ""."""
        name = self.config.path.name
        try:
            found = changes(self.config, await asyncio.to_thread(self.reread))
        except ConfigError as error:
            return f"; {name} has changed since and cannot be used: {error}"
        # `kctl scale` changes counts and no file; settings that need a new master differ after a reload too.
        is_new = any(change.effect is not Effect.FLEET and not change.name.endswith(".count") for change in found)
        return f"; {name} has changed since: `kctl reload`" if is_new else ""

    async def up(self, process: ProcessSupervisor, before: int, report: Report) -> None:
        """Waits until a newer incarnation than `before` is running and its agent reports that it is ready.

        Raises OperationRefused if the process becomes `stopped` or `fatal`. Raises OperationUnknown if cancelled, or if
        the previous process survives SIGKILL.
        """
        with goes_on(f"{process.name} is restarted"):
            await process.until(lambda: process.incarnation > before or bool(process.unkillable_text))
            await self._settled(process, before, report)

    async def _settled(self, process: ProcessSupervisor, after: int, report: Report) -> None:
        while True:
            if process.unkillable_text:
                raise OperationUnknown(process.unkillable_text)
            await process.until(
                lambda: (
                    process.state in (SupervisionState.FATAL, SupervisionState.STOPPED)
                    or (process.state is SupervisionState.RUNNING and process.incarnation > after)
                )
            )
            if process.state in (SupervisionState.FATAL, SupervisionState.STOPPED):
                why = process.status().last_error
                changed = await self.file_changed()
                raise OperationRefused(f"{process.name} is {process.state}" + (f": {why}" if why else "") + changed)
            beat = await self.agents.ping(process.name, 1.0)
            if beat is not None and beat.state in _UP:
                return
            report(f"{process.name} is {'silent' if beat is None else beat.state}")
            await asyncio.sleep(_POLL_SECONDS)


async def _or_logged(work: Coroutine[object, object, object]) -> bool:
    try:
        await work
    except KctlError as error:
        log.warning("action=afterwards: %s", error)
        return False
    return True
