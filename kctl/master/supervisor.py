"""Starts, supervises and stops all processes of the fleet."""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import InitVar, dataclass, replace

from kctl.errors import OperationUnknown
from kctl.master.process import ProcessLog, processes
from kctl.master.process_supervisor import Launch, Probe, ProcessSupervisor, SupervisionPolicy
from kctl.master.restart import Cause
from kctl.rows.workers import WorkerStatus
from kctl_agent.errors import BadParams
from kctl_agent.replies.workers import PingReply, Scope
from kctl_agent.rpc.messages import printable_name

SCAN_SECONDS = 10.0
"""The time between scans of all processes, whose cost grows with their number; a new process counts after a scan."""
SHARED_SECONDS = 60.0
"""The time between two measurements of shared sizes, each of which costs up to a millisecond per fork."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Memory:
    """Measures the memory of Unix sessions from /proc. Only one thread may use it at a time.

    Spark's Python processes are forks of one daemon. If forks share a page, kctl counts the page once (PSS). For other
    processes, kctl counts all resident pages, so that a size does not depend on who else uses the same libraries.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._members: dict[int, list[int]] = {}
        self._shared: dict[int, int] = {}
        """By pid: resident bytes of forks that are charged to their relatives."""
        self._families: dict[frozenset[int], float] = {}
        """Forks of one process -> time of the last measurement of their shared size."""
        self._scanned_at = float("-inf")

    def measured(self, sessions: Iterable[int], *, scan_all: bool = False) -> dict[int, int]:
        """Returns the bytes of each session that has a process. Scans for new processes if a session is new, if
        `SCAN_SECONDS` have passed since the last scan, or if `scan_all` is set."""
        session_ids = set(sessions)
        now = self._clock()
        if scan_all or now - self._scanned_at >= SCAN_SECONDS or not session_ids <= self._members.keys():
            self._scanned_at = now
            self._scan(session_ids, now)
        sizes = {
            session: [
                max(process.resident_pages * _PAGE_BYTES - self._shared.get(process.pid, 0), 0)
                for process in processes(self._members[session])
                if process.session == session  # the pid may have been reused
            ]
            for session in session_ids
        }
        return {session: sum(found) for session, found in sizes.items() if found}

    def _scan(self, session_ids: set[int], now: float) -> None:
        self._members = {session: [] for session in session_ids}
        relatives: dict[tuple[int, int], list[int]] = defaultdict(list)
        for process in processes():
            if process.session in session_ids:
                self._members[process.session].append(process.pid)
                relatives[process.session, process.stack_start].append(process.pid)
        shared: dict[int, int] = {}
        families: dict[frozenset[int], float] = {}
        for family in map(frozenset, filter(lambda pids: len(pids) > 1, relatives.values())):
            asked_at = self._families.get(family)
            is_known = asked_at is not None and now - asked_at < SHARED_SECONDS
            families[family] = asked_at if asked_at is not None and is_known else now
            shared |= {pid: self._shared[pid] if is_known else shared_bytes(pid) for pid in family}
        self._shared, self._families = shared, families


def shared_bytes(pid: int) -> int:
    """Returns a process's resident bytes minus its PSS, or 0 if unknown (another user's process, or before Linux 4.14).
    Takes 3 ms for a JVM of 850 MB, because the kernel walks all pages."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
            lines = file.read(4096).splitlines()
    except OSError:
        return 0
    kibibytes = {name: int(line.split()[1]) for line in lines for name in (line[:4],) if name in (b"Rss:", b"Pss:")}
    return max(kibibytes.get(b"Rss:", 0) - kibibytes.get(b"Pss:", 0), 0) * 1024


_OLD_SECONDS = 5.0  # the longest time for which callers share a measurement


@dataclass(eq=False, repr=False)
class Supervisor:
    """Supervises a fleet's processes. Belongs to one event loop."""

    launches: InitVar[Iterable[Launch]]
    _policies: Mapping[str, SupervisionPolicy]  # a policy for each kind of process
    _probe: Probe
    at_start: Callable[[str], Mapping[str, object]] = lambda _: {}
    paused: Callable[[str], tuple[Scope, ...]] = lambda _: ()
    """Returns what a process must not read."""

    def __post_init__(self, launches: Iterable[Launch]) -> None:
        self._given_up: asyncio.Queue[str] = asyncio.Queue()
        self._processes = {launch.name: self._supervised(launch) for launch in launches}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._memory = Memory()
        self._sampled_at = float("-inf")
        self._resident: dict[int, int] = {}
        """Resident bytes by pid, so that a process never inherits those of its predecessor."""

    @property
    def names(self) -> list[str]:
        return sorted(self._processes)

    def kinds(self) -> dict[str, str]:
        return {name: process.launch.kind for name, process in self._processes.items()}

    def on_heartbeats(self, beats: Mapping[str, PingReply], at: float) -> None:
        """Records answers to pings sent at the monotonic time `at`. Each answer postpones its process's next ping."""
        for name, beat in beats.items():
            process = self._processes.get(name)
            if process is not None:
                process.on_heartbeat(beat, at)

    def process(self, name: str) -> ProcessSupervisor:
        """Returns the process `name`. Raises BadParams if it does not exist."""
        process = self._processes.get(name)
        if process is None:
            known = ", ".join(self.names) or "none"
            raise BadParams(f"there is no worker or sinker {printable_name(name)}; there are {known}")
        return process

    async def run(self) -> None:
        """Supervises all processes until cancelled, then kills the processes that still run."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._sample_memory(), name="memory")
            for process in self._processes.values():
                self._run(process)

    async def stop(self) -> None:
        """Stops all processes except the engine, then the engine. Does not wait for processes that survive SIGKILL."""
        engines = self._engines
        await asyncio.gather(*(_stopped(process) for process in self._processes.values() if process not in engines))
        await asyncio.gather(*(_stopped(process) for process in engines))

    @property
    def has_survivors(self) -> bool:
        return any(process.unkillable_text for process in self._processes.values())

    def add(self, launch: Launch) -> ProcessSupervisor:
        process = self._processes[launch.name] = self._supervised(launch)
        self._run(process)
        return process

    async def remove(self, name: str) -> None:
        """Stops a process and forgets it. If it survives SIGKILL, raises OperationUnknown and does not forget it."""
        await self.process(name).stop()
        del self._processes[name]
        task = self._running.pop(name)
        task.cancel()
        await asyncio.wait([task])

    def reconfigure(self, launches: Iterable[Launch], policies: Mapping[str, SupervisionPolicy]) -> None:
        """Applies `policies` now, and `launches` at the next start of each process."""
        self._policies = policies
        for process in self._processes.values():
            process.policy = policies[process.launch.kind]
        for launch in launches:
            if launch.name in self._processes:
                self._processes[launch.name].launch = launch

    def status(self) -> tuple[WorkerStatus, ...]:
        return tuple(replace(self._processes[name].status(), paused=self.paused(name)) for name in self.names)

    async def until_fatal(self) -> str:
        return await self._given_up.get()

    async def resident_bytes(self) -> dict[str, int]:
        """Returns the memory of each running process, including its children."""
        pids = {process.name: process.pid for process in self._processes.values() if process.pid is not None}
        is_old = time.monotonic() - self._sampled_at > min(_OLD_SECONDS, 0.9 * self._memory_interval_seconds)
        if is_old or not self._resident.keys() >= set(pids.values()):
            healths = [self._processes[name].health for name in pids]
            is_starting = any(health is None or health.boot_bytes is None for health in healths)
            self._resident = await asyncio.to_thread(self._memory.measured, pids.values(), scan_all=is_starting)
            self._sampled_at = time.monotonic()
        return {name: self._resident[pid] for name, pid in pids.items() if pid in self._resident}

    def memory_limits(self) -> dict[str, int]:
        rules = {name: process.policy.rules for name, process in self._processes.items()}
        limits = {name: each.memory_soft_bytes or each.memory_hard_bytes for name, each in rules.items()}
        return {name: limit for name, limit in limits.items() if limit is not None}

    def logs(self) -> list[ProcessLog]:
        return [log for process in self._processes.values() if (log := process.log) is not None]

    async def _sample_memory(self) -> None:
        while True:
            for name, resident_bytes in (await self.resident_bytes()).items():
                if name in self._processes:
                    self._processes[name].on_memory_sample(resident_bytes)
            await asyncio.sleep(self._memory_interval_seconds)

    @property
    def _engines(self) -> list[ProcessSupervisor]:
        return [process for process in self._processes.values() if process.launch.kind == "engine"]

    @property
    def _memory_interval_seconds(self) -> float:
        return min(policy.memory_interval_seconds for policy in self._policies.values())

    def _run(self, process: ProcessSupervisor) -> None:
        assert self._group is not None
        self._running[process.name] = self._group.create_task(process.run(), name=process.name)
        process.start()

    def _supervised(self, launch: Launch) -> ProcessSupervisor:
        return ProcessSupervisor(
            launch,
            self._policies[launch.kind],
            self._probe,
            self.at_start,
            self._given_up.put_nowait,
            self._on_stalled_from_start,
        )

    def _on_stalled_from_start(self, name: str, since: float) -> None:
        if self.process(name).launch.kind != "worker":
            return
        healths = [process.health for process in self._processes.values() if process.launch.kind == "worker"]
        last_batch = max((health.batch_at for health in healths if health is not None), default=float("-inf"))
        for engine in self._engines:
            # If no worker has finished a batch since the stall began, the engine may be broken.
            if last_batch < max(since, engine.since):
                engine.replace(Cause.STALLED, f"{name} stalls, and no worker has finished a batch in it")


async def _stopped(process: ProcessSupervisor) -> None:
    with suppress(OperationUnknown):  # logged
        await process.stop()
