"""All processes of the fleet: one keeper each, started together, stopped together, none outliving it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kctl.master.health import Heartbeat
from kctl.master.keeper import Care, Keeper, Launch, Probe
from kctl.master.memory import Memory
from kctl.master.process_log import ProcessLog
from kctl.master.snapshot import WorkerStatus
from kctl.reduce.rows import PauseRow
from kctl_agent.errors import BadParams
from kctl_agent.messages import printable_name

__all__ = ["Supervisor"]

_OLD_SECONDS = 5.0
"""What was measured is shared by all who ask, for as long as memory is measured anyway, but never longer than this."""


class Supervisor:
    """Belongs to one event loop."""

    def __init__(
        self,
        launches: Iterable[Launch],
        care: Care,
        probe: Probe,
        at_start: Callable[[str], Mapping[str, object]] = lambda _: {},
        paused: Callable[[str], tuple[PauseRow, ...]] = lambda _: (),
    ) -> None:
        """`at_start` gives what a new process is told beyond its launch's settings; `paused` what it shall not read."""
        self._care = care
        self._probe = probe
        self._at_start = at_start
        self._paused = paused
        self._given_up: asyncio.Queue[str] = asyncio.Queue()
        self._keepers = {launch.name: self._keeper(launch) for launch in launches}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._memory = Memory()
        self._weighed_at = float("-inf")
        self._resident: dict[int, int] = {}
        """By pid: what was measured of a process is never taken for that of its successor."""

    @property
    def names(self) -> list[str]:
        return sorted(self._keepers)

    def kinds(self) -> dict[str, str]:
        """Every name to `worker` or `sinker`."""
        return {name: keeper.launch.kind for name, keeper in self._keepers.items()}

    def heard(self, beats: Mapping[str, Heartbeat], at: float) -> None:
        """What agents have answered to somebody who asked all of them `at` that time, of the monotonic clock: they need
        not be asked again at once."""
        for name, beat in beats.items():
            keeper = self._keepers.get(name)
            if keeper is not None:
                keeper.heard(beat, at)

    def keeper(self, name: str) -> Keeper:
        """Raises BadParams when nothing of that name is supervised; the message names what is."""
        keeper = self._keepers.get(name)
        if keeper is None:
            known = ", ".join(self.names) or "none"
            raise BadParams(f"there is no worker or sinker {printable_name(name)}; there are {known}")
        return keeper

    async def run(self) -> None:
        """Starts every worker and keeps them until cancelled, which kills what still lives of them."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._weigh(), name="memory")
            for keeper in self._keepers.values():
                self._keep(keeper)

    async def stop(self) -> None:
        """Stops all workers at the same time; returns when nothing of them is left."""
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers.values()))

    def add(self, launch: Launch) -> Keeper:
        """One process more, started now."""
        keeper = self._keepers[launch.name] = self._keeper(launch)
        self._keep(keeper)
        return keeper

    async def remove(self, name: str) -> None:
        """Stops a process and forgets it."""
        await self.keeper(name).stop()
        del self._keepers[name]
        task = self._running.pop(name)
        task.cancel()
        await asyncio.wait([task])

    def reconfigure(self, launches: Iterable[Launch], care: Care) -> None:
        """From now on look after all as `care` says; a process that is started next is started by its new launch."""
        self._care = care
        for keeper in self._keepers.values():
            keeper.care = care
        for launch in launches:
            if launch.name in self._keepers:
                self._keepers[launch.name].launch = launch

    def status(self) -> tuple[WorkerStatus, ...]:
        return tuple(replace(self._keepers[name].status(), paused=self._paused(name)) for name in self.names)

    async def until_fatal(self) -> str:
        """The name of the next process that is given up."""
        return await self._given_up.get()

    async def resident_bytes(self) -> dict[str, int]:
        """Worker to the resident memory of its whole session, JVM included; workers without a process are absent."""
        pids = {keeper.name: keeper.pid for keeper in self._keepers.values() if keeper.pid is not None}
        is_old = time.monotonic() - self._weighed_at > min(_OLD_SECONDS, 0.9 * self._care.memory_interval_seconds)
        if is_old or not self._resident.keys() >= set(pids.values()):
            healths = [self._keepers[name].health for name in pids]
            is_starting = any(health is None or health.boot_bytes is None for health in healths)
            self._resident = await asyncio.to_thread(self._memory.measured, pids.values(), look_at_all=is_starting)
            self._weighed_at = time.monotonic()
        return {name: self._resident[pid] for name, pid in pids.items() if pid in self._resident}

    def logs(self) -> list[ProcessLog]:
        """Those that are written to now."""
        return [log for keeper in self._keepers.values() if (log := keeper.log) is not None]

    async def _weigh(self) -> None:
        while True:
            for name, resident_bytes in (await self.resident_bytes()).items():
                if name in self._keepers:
                    self._keepers[name].weighed(resident_bytes)
            await asyncio.sleep(self._care.memory_interval_seconds)

    def _keep(self, keeper: Keeper) -> None:
        assert self._group is not None
        self._running[keeper.name] = self._group.create_task(keeper.run(), name=keeper.name)
        keeper.start()

    def _keeper(self, launch: Launch) -> Keeper:
        return Keeper(launch, self._care, self._probe, self._at_start, self._given_up.put_nowait)
