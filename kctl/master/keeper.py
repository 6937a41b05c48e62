"""Keeps one worker in its desired state: `restart` decides, `process` acts, this joins them.

One task reads one queue, so no two things happen to a worker at once: the end of its process, an answer of its agent, a
timer and an order all become events. What is done follows from the state that is entered.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kctl.master.process import Child, remove_socket
from kctl.master.restart import Cause, Due, Event, Exited, Policy, Ready, Replace, Start, State, Status, Stop, step
from kctl.master.snapshot import WorkerStatus

__all__ = ["Keeper", "Launch", "Probe"]

log = logging.getLogger(__name__)

Probe = Callable[[str], Awaitable[int | None]]
"""Worker name to the pid that its agent answers a ping with, or None if it does not; bounded in time by itself."""

_PROBE_INTERVAL_SECONDS = 0.1
_SPAWN_FAILED = 127
"""The shell's exit code for a command that cannot be executed."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start and stop one worker or sinker."""

    name: str
    command: Sequence[str]
    settings: Mapping[str, object]
    log_path: Path
    socket_path: Path
    start_timeout_seconds: float
    stop_timeout_seconds: float
    kind: str = "worker"


class Keeper:
    """Belongs to one event loop. `run` is its life; `start` and `stop` are orders to it."""

    def __init__(self, launch: Launch, policy: Policy, probe: Probe) -> None:
        self._launch = launch
        self._policy = policy
        self._probe = probe
        self._events: asyncio.Queue[tuple[int | None, Event]] = asyncio.Queue()
        self._incarnation = 0
        self._child: Child | None = None
        self._duties: asyncio.TaskGroup | None = None
        self._probing: asyncio.Task[None] | None = None
        self._status = Status(since=time.monotonic())
        self._is_gone = asyncio.Event()
        self._is_gone.set()
        self._has_ended = False
        self._ending = ""
        self._last_error: str | None = None

    @property
    def name(self) -> str:
        return self._launch.name

    @property
    def pid(self) -> int | None:
        """The process, which is also its session; None while there is none."""
        return None if self._child is None else self._child.pid

    def start(self) -> None:
        self._order(Start())

    async def stop(self) -> None:
        """Asks the worker to leave, kills it at the deadline; returns when nothing of it is left."""
        if not self._has_ended:
            self._order(Stop())
            await self._is_gone.wait()

    def status(self) -> WorkerStatus:
        now, status = time.monotonic(), self._status
        return WorkerStatus(
            name=self.name,
            kind=self._launch.kind,
            desired=status.desired.value,
            state=status.state.value,
            pid=self.pid,
            since_seconds=now - status.since,
            restarts=MappingProxyType({cause.value: status.restarts.get(cause, 0) for cause in Cause}),
            next_try_seconds=None if status.next_try_at is None else max(status.next_try_at - now, 0.0),
            last_error=self._last_error,
            log=str(self._launch.log_path),
        )

    async def run(self) -> None:
        """Handles events until cancelled; then what still lives of the worker is killed."""
        try:
            async with asyncio.TaskGroup() as self._duties:
                while True:
                    incarnation, event = await self._events.get()
                    if incarnation in (None, self._incarnation):
                        await self._handle(event)
        finally:
            if self._child is not None:
                await self._kill_rest(self._child)
                await self._child.wait()
                self._let_go()
            self._has_ended = True
            self._is_gone.set()

    async def _handle(self, event: Event) -> None:
        before = self._status
        self._status = step(self._policy, before, event, time.monotonic(), random.random())
        if isinstance(event, Exited):
            self._let_go()
        if self._status.state is before.state:
            if isinstance(event, Stop) and self._status.state is State.STOPPED:
                self._is_gone.set()
            return
        match self._status.state:
            case State.STARTING:
                await self._spawn()
            case State.RUNNING:
                log.info("action=running worker=%s after_seconds=%.1f", self.name, self._status.since - before.since)
            case State.STOPPING:
                log.info("action=stop worker=%s pid=%s", self.name, self.pid)
                if self._child is not None:
                    self._duty(self._end(self._child), "stop")
            case State.BACKOFF:
                self._wait_for_next_try()
            case State.STOPPED:
                log.info("action=stopped worker=%s", self.name)
                self._is_gone.set()
            case State.FATAL:
                log.error(
                    "action=fatal worker=%s: %s, not started again; %s", self.name, self._ending, self._last_error
                )

    async def _spawn(self) -> None:
        self._incarnation += 1
        try:
            self._child = await Child.spawn(self._launch.command, self._launch.settings, self._launch.log_path)
        except OSError as error:
            self._ending, self._last_error = "could not be started", str(error)
            self._post(Exited(_SPAWN_FAILED))
            return
        log.info("action=start worker=%s pid=%d", self.name, self._child.pid)
        self._duty(self._watch(self._child), "watch")
        self._probing = self._duty(self._await_answer(self._child.pid), "probe")

    def _wait_for_next_try(self) -> None:
        assert self._status.next_try_at is not None
        due = self._status.next_try_at
        pause = max(due - time.monotonic(), 0.0)
        number = self._status.restarts_total + 1
        log.warning(
            "action=backoff worker=%s: %s, restart %d in %.1f s; %s",
            self.name,
            self._ending,
            number,
            pause,
            self._last_error,
        )
        self._duty(self._post_at(due, Due()), "backoff")

    async def _watch(self, child: Child) -> None:
        code = await child.wait()
        lines = await child.last_lines()
        # Its JVM must be gone before a new one starts: two would be two members of the group and two writers.
        await self._kill_rest(child)
        self._ending = _ending(code)
        if self._status.state is not State.STOPPING:
            self._last_error = f"last log line: {lines[-1]}" if lines else "its log is empty"
        self._post(Exited(code))

    async def _await_answer(self, pid: int) -> None:
        deadline = time.monotonic() + self._launch.start_timeout_seconds
        while await self._probe(self.name) != pid:
            if time.monotonic() > deadline:
                self._last_error = f"its agent did not answer within {self._launch.start_timeout_seconds:g} s"
                self._post(Replace(Cause.UNRESPONSIVE))
                return
            await asyncio.sleep(_PROBE_INTERVAL_SECONDS)
        self._post(Ready())

    async def _end(self, child: Child) -> None:
        started = time.monotonic()
        code = await child.stop(self._launch.stop_timeout_seconds)
        if code == -signal.SIGKILL:
            log.warning("action=killed worker=%s after_seconds=%.1f", self.name, time.monotonic() - started)

    async def _kill_rest(self, child: Child) -> None:
        while True:
            try:
                await child.kill_session()
                await asyncio.to_thread(remove_socket, self._launch.socket_path, child.pid)
                return
            except TimeoutError:
                log.error("action=unkillable worker=%s session=%d: a process survives SIGKILL", self.name, child.pid)

    async def _post_at(self, due: float, event: Event) -> None:
        # A loop may wake up one clock tick early, but an early `Due` means nothing and no other would follow.
        await asyncio.sleep(max(due - time.monotonic(), 0) + 0.001)
        self._post(event)

    def _let_go(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
        if self._child is not None:
            self._child.close()
        self._child = self._probing = None

    def _order(self, event: Event) -> None:
        self._is_gone.clear()
        self._events.put_nowait((None, event))

    def _post(self, event: Event) -> None:
        """An event of this incarnation; one that comes late, when a newer one lives, is dropped."""
        self._events.put_nowait((self._incarnation, event))

    def _duty(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        assert self._duties is not None
        return self._duties.create_task(work, name=f"{self.name}-{name}")


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended (exit code {code})"
    try:
        return f"died (signal {-code}, {signal.Signals(-code).name})"
    except ValueError:
        return f"died (signal {-code})"
