"""Sends requests to the fleet's members, to all at once or to one."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Raw
from msgspec.structs import replace

from kctl.daemon_threads import on_disk
from kctl.errors import AgentRefused, OperationUnknown
from kctl.rows.workers import WorkerStatus
from kctl.rpc.fan_out import AgentPool, Failed, FanOut, fan_out, typed
from kctl_agent.errors import AgentTimeout, BadParams
from kctl_agent.paths import list_agents, remove_if_dead, socket_path
from kctl_agent.replies.questions import QUESTIONS
from kctl_agent.replies.workers import PingReply
from kctl_agent.rpc.messages import printable_name
from kctl_agent.rpc.wire import JsonObject, parse_object

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Members:
    """The supervised processes and attached applications. An application is attached once its agent has answered at a
    socket in `run_dir`. If the agent stops answering, the application counts as failed until its process or socket is
    gone. Belongs to one event loop."""

    _run_dir: Path
    _kinds: Callable[[], Mapping[str, str]]  # supervised name -> kind
    _statuses: Callable[[], Iterable[WorkerStatus]]  # used only to explain failures
    _pool: AgentPool
    _attached: set[str] = field(default_factory=set)

    async def sockets(self) -> dict[str, Path]:
        """Returns all socket paths by name. A supervised process may have no socket yet. Raises PathError."""
        found = list_agents(self._run_dir)  # listing one local folder is faster than handing it to a thread
        self._attached &= set(found)
        return {name: socket_path(self._run_dir, name) for name in sorted({*self._kinds(), *found})}

    def check_known(self, name: str) -> None:
        known = sorted({*self._kinds(), *list_agents(self._run_dir)})
        if name not in known:
            listed = ", ".join(known) or "none"
            raise BadParams(f"there is no worker, sinker or application {printable_name(name)}; there are {listed}")

    def concerned(self, sockets: Mapping[str, Path], rpc: str) -> dict[str, Path]:
        """Returns the sockets of the processes that can answer `rpc`."""
        kinds, asked = self._kinds(), QUESTIONS[rpc].kinds
        return {name: path for name, path in sockets.items() if kinds.get(name, "worker") in asked}

    async def ask(self, sockets: Mapping[str, Path], rpc: str, params: JsonObject, deadline: float) -> FanOut[Raw]:
        """Sends the request `rpc` to all agents at `sockets`. `deadline` is in the running event loop's time."""
        outcome = await fan_out(self._pool, sockets, rpc, params, deadline=deadline)
        self._attached |= {answer.sender for answer in outcome.answers} - self._kinds().keys()
        if not outcome.failed:
            return outcome
        supervised = {status.name: status for status in self._statuses()}
        wanted_down = {name for name, status in supervised.items() if status.desired == "stopped"}
        stopped = [each.sender for each in outcome.failed if each.sender in wanted_down]
        failed = [
            _explained(failure, supervised[failure.sender]) if failure.sender in supervised else failure
            for failure in outcome.failed
            if failure.sender not in stopped
            if failure.sender in supervised or await self._is_missed(failure)
        ]
        return FanOut(outcome.answers, failed, tuple(stopped))

    async def _is_missed(self, failure: Failed) -> bool:
        name = failure.sender
        # Only if no process listens, because the pid of a process in another container means nothing here.
        with suppress(TimeoutError):
            if failure.code == "unreachable" and await on_disk(remove_if_dead, self._run_dir, name):
                log.info("action=removed agent=%s: its process has ended and left its socket", name)
                self._attached.discard(name)
        return name in self._attached


def _explained(failure: Failed, status: WorkerStatus) -> Failed:
    if failure.code != "unreachable" or status.state == "running":
        return failure
    return replace(failure, message=f"the {status.kind} is {status.state_words}")


@dataclass(eq=False)
class Agents:
    _run_dir: Path
    _pool: AgentPool

    async def ping(self, name: str, timeout_seconds: float) -> PingReply | None:
        """Returns None if the agent does not answer in time."""
        pings = typed(await self._asked(name, "ping", {}, timeout_seconds), PingReply).answers
        return pings[0].result if pings else None

    async def operate(
        self, name: str, rpc: str, params: JsonObject, timeout_seconds: float = ANSWER_SECONDS
    ) -> JsonObject:
        """Sends an operation to an agent and returns the answer. Raises AgentRefused if the agent rejects the operation
        or does not exist, and OperationUnknown if it does not answer in time."""
        outcome = await self._asked(name, rpc, params, timeout_seconds)
        for failed in outcome.failed:
            error = OperationUnknown if failed.code == AgentTimeout.code else AgentRefused
            raise error(f"{name}: {failed.message}")
        return parse_object(bytes(outcome.answers[0].result))

    async def _asked(self, name: str, rpc: str, params: JsonObject, timeout_seconds: float) -> FanOut[Raw]:
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        return await fan_out(self._pool, {name: socket_path(self._run_dir, name)}, rpc, params, deadline=deadline)
