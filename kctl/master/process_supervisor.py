"""Keeps one process in its desired state: starts it, checks its health, and restarts or stops it."""

import asyncio
import logging
import random
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kctl.daemon_threads import on_disk
from kctl.errors import OperationUnknown
from kctl.master.health import Health, HealthRules, judge, on_heartbeat, on_memory_sample, refusals
from kctl.master.process import KILL_SECONDS, Child, ProcessLog, kill_session, record_session, remove_socket
from kctl.master.restart import (
    Cause,
    Due,
    Event,
    Exited,
    Ready,
    Replace,
    RestartPolicy,
    Start,
    Stop,
    SupervisionState,
    SupervisionStatus,
    Survived,
    cause,
    step,
    why,
)
from kctl.rows.workers import WorkerStatus
from kctl_agent.replies.workers import PingReply

log = logging.getLogger(__name__)

Probe = Callable[[str, float], Awaitable[PingReply | None]]

_PROBE_TIMEOUT_SECONDS = 1.0
_ABORT_SECONDS = 1.0
_CAUSES = {cause.value: cause for cause in Cause}
_SPAWN_FAILED = 127


@dataclass(frozen=True, slots=True)
class Launch:
    name: str
    command: Sequence[str]
    settings: Mapping[str, object]
    log_path: Path
    socket_path: Path
    start_timeout_seconds: float
    stop_timeout_seconds: float
    kind: str = "worker"


@dataclass(frozen=True, slots=True)
class SupervisionPolicy:
    restart: RestartPolicy
    rules: HealthRules
    ping_interval_seconds: float = 1.0
    memory_interval_seconds: float = 2.0


@dataclass(eq=False, repr=False)
class ProcessSupervisor:
    """Supervises one process while `run` runs. Belongs to one event loop."""

    launch: Launch
    policy: SupervisionPolicy
    _probe: Probe
    _at_start: Callable[[str], Mapping[str, object]]
    _given_up: Callable[[str], None]  # called when the process enters the state `fatal`
    _stalled_from_start: Callable[[str, float], None]
    """Called with the time of its last progress if the process stalls and has never finished a batch."""

    def __post_init__(self) -> None:
        self.former: int | None = None
        """The session of a process of an earlier master that survives SIGKILL; it must end first."""
        self.started_with: Mapping[str, object] = {}
        self._events: asyncio.Queue[tuple[int | None, Event]] = asyncio.Queue()
        self.incarnation = 0
        """The number of starts. Other objects only read it and `health`."""
        self._child: Child | None = None
        self._survivors: Mapping[int, str] = {}
        self._duties: asyncio.TaskGroup | None = None
        self._health_check: asyncio.Task[None] | None = None
        self.health: Health | None = None
        self._status = SupervisionStatus(since=time.monotonic())
        self._has_stopped = asyncio.Event()
        self._has_stopped.set()
        self._changed = asyncio.Condition()
        self._has_ended = False
        self._ending = ""
        self._last_error: str | None = None
        self._was_killed = False  # whether the previous process ignored the request to leave
        self._warning: str | None = None

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    @property
    def log(self) -> ProcessLog | None:
        return None if self._child is None else self._child.log

    @property
    def state(self) -> SupervisionState:
        return self._status.state

    @property
    def since(self) -> float:
        return self._status.since

    def start(self) -> None:
        self._request(Start())

    def restart(self) -> None:
        alive = self._status.state in (SupervisionState.STARTING, SupervisionState.RUNNING)
        self._request(Replace(Cause.REQUESTED) if alive else Start())

    def replace(self, cause: Cause, why: str) -> None:
        if self._status.state is SupervisionState.RUNNING:
            self._last_error = why
            log.warning("action=unhealthy worker=%s cause=%s: %s", self.name, cause, why)
            self._request(Replace(cause))

    async def stop(self, timeout_seconds: float | None = None) -> None:
        """Stops the process, and kills it after `timeout_seconds` (None: as configured). Returns when all
        processes of its session have ended. Raises OperationUnknown if a process survives SIGKILL."""
        if not self._has_ended:
            self._request(Stop(timeout_seconds))
            await self._has_stopped.wait()
        if self._survivors:
            raise OperationUnknown(self.unkillable_text)

    async def until(self, predicate: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(predicate)

    def on_memory_sample(self, resident_bytes: int) -> None:
        if self.health is None:
            return
        self.health = on_memory_sample(self.health, self.policy.rules, resident_bytes)
        warning = refusals(self.policy.rules, self.health)
        if warning != self._warning and warning is not None:
            log.warning("action=limit_refused worker=%s: %s", self.name, warning)
        self._warning = warning
        self._judge()

    def on_heartbeat(self, beat: PingReply, at: float) -> None:
        """Records the answer to a ping that was sent at `at`. Ignores the answer of a former process."""
        if self.health is not None and beat.pid == self.pid and at > self.health.heartbeat_at:
            self.health = on_heartbeat(self.health, beat, at)

    @property
    def unkillable_text(self) -> str:
        if not self._survivors:
            return ""
        found = "; ".join(f"pid {pid} survives SIGKILL: {reason}" for pid, reason in sorted(self._survivors.items()))
        return f"{found}; {self.name} restarts only after that process is gone"

    def status(self) -> WorkerStatus:
        now, status = time.monotonic(), self._status
        return WorkerStatus(
            name=self.name,
            kind=self.launch.kind,
            desired=status.desired.value,
            state=status.state.value,
            pid=next(iter(sorted(self._survivors)), self.pid),
            since_seconds=now - status.since,
            restarts_by_cause=MappingProxyType(
                {name: status.restarts.get(cause, 0) for name, cause in _CAUSES.items()}
            ),
            next_try_seconds=None if status.next_try_at is None else max(status.next_try_at - now, 0.0),
            last_error=self.unkillable_text or self._last_error,
            log=str(self.launch.log_path),
            resident_bytes=None if self.health is None else self.health.resident_bytes,
            warning=self._warning,
            is_requested=status.is_requested,
        )

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._duties:
                while True:
                    incarnation, event = await self._events.get()
                    if incarnation in (None, self.incarnation):
                        await self._handle(event)
        finally:
            if self._child is not None:
                if not await self._survives(self._child.pid):
                    await self._child.wait()
                self._let_go()
            if self._survivors:
                log.error("action=left worker=%s: %s", self.name, self.unkillable_text)
            self._has_ended = True
            self._has_stopped.set()

    async def _handle(self, event: Event) -> None:
        before = self._status
        self._status = step(self.policy.restart, before, event, time.monotonic(), random.random())
        if isinstance(event, Exited):
            self._let_go()
        if self._status.state is before.state:
            if isinstance(event, Stop) and before.state in (SupervisionState.STOPPED, SupervisionState.UNKILLABLE):
                self._has_stopped.set()
        else:
            await self._entered(before, event)
        async with self._changed:
            self._changed.notify_all()

    async def _entered(self, before: SupervisionStatus, event: Event) -> None:
        match self._status.state:
            case SupervisionState.STARTING:
                await self._spawn()
            case SupervisionState.RUNNING:
                log.info("action=running worker=%s after_seconds=%.1f", self.name, self._status.since - before.since)
                now = time.monotonic()
                self.health = Health(heartbeat_at=now, progress_at=now)
            case SupervisionState.STOPPING:
                log.info("action=stop worker=%s pid=%s", self.name, self.pid)
                self.health, self._was_killed = None, False
                if self._child is not None:
                    self._duty(self._end(self._child, event), "stop")
            case SupervisionState.UNKILLABLE:
                log.error("action=unkillable worker=%s: %s", self.name, self.unkillable_text)
                self.health = None
                self._has_stopped.set()
            case SupervisionState.BACKOFF:
                self._wait_for_next_try()
            case SupervisionState.STOPPED:
                log.info("action=stopped worker=%s", self.name)
                self._has_stopped.set()
            case SupervisionState.FATAL:
                log.error("action=fatal worker=%s: %s, not restarted; %s", self.name, self._ending, self._last_error)
                self._given_up(self.name)

    async def _spawn(self) -> None:
        self.incarnation += 1
        if self.former is not None:
            self._duty(self._end_former(self.former), "former")
            self.former = None
            return
        self.started_with = self.launch.settings
        try:
            settings = {**self.launch.settings, **self._at_start(self.name)}
            socket = str(self.launch.socket_path)
            self._child = await Child.spawn(self.launch.command, settings, self.launch.log_path, socket)
        except OSError as error:
            self._ending, self._last_error = "could not be started", str(error)
            self._post(Exited(_SPAWN_FAILED))
            return
        log.info("action=start worker=%s pid=%d", self.name, self._child.pid)
        self._duty(self._watch(self._child), "watch")
        self._health_check = self._duty(self._check_health(self._child.pid), "health")

    async def _end_former(self, session: int) -> None:
        await self._kill_rest(session)
        self._ending = "was left by an earlier master"
        self._post(Exited(-signal.SIGKILL))

    def _wait_for_next_try(self) -> None:
        assert self._status.next_try_at is not None
        due = self._status.next_try_at
        pause = max(due - time.monotonic(), 0.0)
        number = sum(self._status.restarts.values()) + 1
        more = "" if self._ending.endswith(f"({self._last_error})") else f"; {self._last_error}"
        log.warning(
            "action=backoff worker=%s: %s, restart %d in %.1f s%s", self.name, self._ending, number, pause, more
        )
        self._duty(self._post_at(due, Due()), "backoff")

    async def _watch(self, child: Child) -> None:
        code = await child.wait()
        if self._health_check is not None:
            self._health_check.cancel()  # an answer from before the end would clear the error that follows
        was_ended = self._status.state in (SupervisionState.STOPPING, SupervisionState.UNKILLABLE)
        lines: list[str] = []
        with suppress(TimeoutError):
            lines = await on_disk(child.log.last_lines, 1)
        # Its JVM must be gone before a new one starts: two would be two members of the group and two writers.
        await self._kill_rest(child.pid)
        if was_ended:
            self._ending = "was ended"
        else:
            self._ending = _ending(code)
            self._last_error = why(code, lines[-1] if lines else None)
        self._post(Exited(code))

    async def _check_health(self, pid: int) -> None:
        deadline = time.monotonic() + self.launch.start_timeout_seconds
        while not await self._is_answering(pid, _PROBE_TIMEOUT_SECONDS):
            if time.monotonic() > deadline:
                self._last_error = f"its agent did not answer within {self.launch.start_timeout_seconds:g} s"
                self._post(Replace(Cause.UNRESPONSIVE, at_once=True))
                return
            await asyncio.sleep(0.1)
        self._post(Ready())
        while True:
            await asyncio.sleep(self.policy.ping_interval_seconds)
            silence = 0.0 if self.health is None else time.monotonic() - self.health.heartbeat_at
            if silence >= self.policy.ping_interval_seconds or self.health is None:
                remaining = self.policy.rules.ping_timeout_seconds - silence
                await self._is_answering(pid, min(max(remaining, 0.05), _PROBE_TIMEOUT_SECONDS))
            self._forget_error()
            self._judge()

    async def _is_answering(self, pid: int, timeout_seconds: float) -> bool:
        beat = await self._probe(self.name, timeout_seconds)
        if beat is None or beat.pid != pid:
            return False
        if self.health is not None:
            self.health = on_heartbeat(self.health, beat, time.monotonic())
        return True

    def _forget_error(self) -> None:
        if self.health is not None and self._last_error is not None:
            seconds = time.monotonic() - self._status.since
            if (self._status.failures == 0 and not self._was_killed) or seconds >= self.policy.restart.stable_seconds:
                self._last_error = None

    def _judge(self) -> None:
        if self.health is None:
            return
        unhealthy = judge(self.policy.rules, self.health, time.monotonic())
        if unhealthy is not None:
            is_from_start = unhealthy.cause is Cause.STALLED and not self.health.batches_total
            since = self.health.progress_at
            self.health = None  # one verdict for each incarnation
            self._last_error = unhealthy.why
            log.warning("action=unhealthy worker=%s cause=%s: %s", self.name, unhealthy.cause, unhealthy.why)
            self._post(Replace(unhealthy.cause, unhealthy.at_once))
            if is_from_start:
                self._stalled_from_start(self.name, since)

    async def _end(self, child: Child, event: Event) -> None:
        started = time.monotonic()
        if isinstance(event, Replace) and event.at_once:
            if event.cause is Cause.UNRESPONSIVE:
                # faulthandler writes the stacks of its threads. SIGCONT, because a stopped process takes only SIGKILL.
                await child.stop(_ABORT_SECONDS, signal.SIGABRT, signal.SIGCONT)
        else:
            given = event.timeout_seconds if isinstance(event, Stop) else None
            timeout_seconds = self.launch.stop_timeout_seconds if given is None else given
            if await child.stop(timeout_seconds):
                return
            is_asked = isinstance(event, Stop) or self._status.cause is Cause.REQUESTED
            before = "" if is_asked or self._last_error is None else f"{self._last_error}; "
            self._last_error = f"{before}it did not leave within {timeout_seconds:g} s, and was killed"
            self._was_killed = True
        await self._kill_rest(child.pid)
        log.warning("action=killed worker=%s after_seconds=%.1f", self.name, time.monotonic() - started)

    async def _kill_rest(self, session: int) -> None:
        while await self._survives(session):
            self._post(Survived())
            await asyncio.sleep(0.5)

    async def _survives(self, session: int) -> bool:
        _, self._survivors = await kill_session(session, seconds=0.0 if self._survivors else KILL_SECONDS)
        tidy = record_session if self._survivors else remove_socket
        with suppress(OSError):  # the disk is full or hangs: the next try records survivors
            await on_disk(tidy, self.launch.socket_path, session)
        return bool(self._survivors)

    async def _post_at(self, due: float, event: Event) -> None:
        # A loop may wake up one clock tick early, but an early `Due` means nothing and no other would follow.
        await asyncio.sleep(max(due - time.monotonic(), 0) + 0.001)
        self._post(event)

    def _let_go(self) -> None:
        if self._health_check is not None:
            self._health_check.cancel()
        if self._child is not None:
            self._child.close()
        self._child = self._health_check = self.health = None

    def _request(self, event: Event) -> None:
        self._has_stopped.clear()
        self._events.put_nowait((None, event))

    def _post(self, event: Event) -> None:
        self._events.put_nowait((self.incarnation, event))

    def _duty(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        assert self._duties is not None
        return self._duties.create_task(work, name=f"{self.name}-{name}")


def _ending(code: int) -> str:
    return f"ended (exit code {code})" if code >= 0 else f"died ({cause(code)})"
