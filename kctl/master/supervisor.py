"""All workers of the fleet: one keeper each, started together, stopped together, none outliving it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kctl.master.keeper import Keeper, Launch, Probe
from kctl.master.process import memory_by_session
from kctl.master.restart import Policy
from kctl.master.snapshot import WorkerStatus

__all__ = ["Supervisor"]


class Supervisor:
    """Belongs to one event loop."""

    def __init__(self, launches: Iterable[Launch], policy: Policy, probe: Probe) -> None:
        self._keepers = {launch.name: Keeper(launch, policy, probe) for launch in launches}

    @property
    def names(self) -> list[str]:
        return sorted(self._keepers)

    async def run(self) -> None:
        """Starts every worker and keeps them until cancelled, which kills what still lives of them."""
        async with asyncio.TaskGroup() as group:
            for keeper in self._keepers.values():
                group.create_task(keeper.run(), name=keeper.name)
                keeper.start()

    async def stop(self) -> None:
        """Stops all workers at the same time; returns when nothing of them is left."""
        await asyncio.gather(*(keeper.stop() for keeper in self._keepers.values()))

    def status(self) -> tuple[WorkerStatus, ...]:
        return tuple(self._keepers[name].status() for name in self.names)

    async def resident_bytes(self) -> dict[str, int]:
        """Worker to the resident memory of its whole session, JVM included; workers without a process are absent."""
        sessions = {keeper.name: keeper.pid for keeper in self._keepers.values()}
        found = await asyncio.to_thread(memory_by_session, [pid for pid in sessions.values() if pid is not None])
        return {name: found[pid] for name, pid in sessions.items() if pid in found}
