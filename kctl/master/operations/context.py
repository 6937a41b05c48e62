"""What operations are carried out with, and what several of them need: names, and agents that carry out their part."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kctl.config import Config, Http
from kctl.config.effects import Effect, changes
from kctl.errors import AgentRefused, ConfigError, KctlError, OperationRefused
from kctl.master.agents import Agents
from kctl.master.members import Members
from kctl.master.operations.base import Report
from kctl.master.pauses import Pauses
from kctl.master.process_supervisor import ProcessSupervisor
from kctl.master.restart import State
from kctl.master.supervisor import Supervisor
from kctl_agent.errors import BadParams
from kctl_agent.wire import JsonObject

__all__ = ["Context", "file_changed", "settled", "together"]

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.05
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
    use_http: Callable[[Http], list[str]] = lambda _: []
    """Reads tokens and certificate again and has HTTP use them; returns what has changed. Raises ConfigError, and then
    nothing has."""
    prepare_groups: Callable[[Config], Callable[[], Awaitable[None]]] = lambda _: _nothing
    """Checks what `[exporter]` sets; returns what has it used. Raises ConfigError."""
    partitions: Callable[[str], frozenset[int]] = lambda _: frozenset()
    """The partitions of a topic that the brokers reported last; empty when that is not known."""
    _ids: itertools.count[int] = field(default_factory=itertools.count)
    _later: set[asyncio.Task[object]] = field(default_factory=set)

    def later(self, work: Coroutine[object, object, object]) -> None:
        """Does it beside everything else; what goes wrong is logged and reported to nobody."""
        task: asyncio.Task[object] = asyncio.ensure_future(_or_logged(work))
        self._later.add(task)
        task.add_done_callback(self._later.discard)

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
        """Has one agent carry out an operation; returns when it is done.

        Raises:
            AgentRefused: it did not take it, or failed in it; the message has the reason.
        """
        # Unique over restarts of the master too: an agent takes an operation of a known id for the same one.
        operation = f"{os.getpid()}-{next(self._ids)}-{asyncio.get_running_loop().time():.3f}"
        await self.agents.operate(name, rpc, {"operation": operation, **params}, _ANSWER_SECONDS)
        while True:
            outcome = await self.agents.operate(name, "operation", {"operation": operation}, _ANSWER_SECONDS)
            if outcome.get("state") == "done":
                return outcome
            text = str(outcome.get("text", ""))
            if outcome.get("state") == "failed":
                raise AgentRefused(f"{name}: {text}")
            report(f"{name}: {text}")
            await asyncio.sleep(_POLL_SECONDS)

    async def send_pauses(self, name: str, report: Report) -> str:
        """Has a process read what the pauses leave; returns when it does, or when there is no need: a process that
        starts gets them at its start."""
        process = self.supervisor.process(name)
        while True:
            if process.state is State.STARTING:
                report(f"{name} is starting")
                await process.until(lambda: process.state is not State.STARTING)
            if process.state is not State.RUNNING:
                return f"{name} is {process.state}"
            incarnation = process.incarnation
            try:
                await self.run_on(name, "pause", {"scopes": self.pauses.scopes(name)}, report)
            except AgentRefused:
                if process.incarnation == incarnation and process.state is State.RUNNING:
                    raise
            else:
                return name


async def _or_logged(work: Coroutine[object, object, object]) -> None:
    try:
        await work
    except KctlError as error:
        log.warning("action=afterwards: %s", error)


async def together(work: Iterable[Coroutine[object, object, object]]) -> None:
    """All of it to its end; then the first error is raised."""
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome


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
                process.state in (State.FATAL, State.STOPPED)
                or (process.state is State.RUNNING and process.incarnation > after)
            )
        )
        if process.state in (State.FATAL, State.STOPPED):
            why = process.status().last_error
            changed = await file_changed(context)
            raise OperationRefused(f"{process.name} is {process.state}" + (f": {why}" if why else "") + changed)
        beat = await context.agents.ping(process.name, 1.0)
        if beat is not None and beat.state in _UP:
            return
        report(f"{process.name} is {'silent' if beat is None else beat.state}")
        await asyncio.sleep(_POLL_SECONDS)
