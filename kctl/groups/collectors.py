"""The collectors of several clusters; clusters are added, removed and changed at run time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock

from kctl.groups.collector import ClusterCollector, CollectedCluster
from kctl.groups.snapshot import Clusters, ClusterSnapshot
from kctl.kafka.groups import Group

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    wanted: Mapping[str, CollectedCluster]
    collectors: Mapping[str, ClusterCollector]


class Collectors:
    """The collectors of all clusters. Belongs to one event loop; `latest` and `whole` are safe on any thread. Call
    `close` at the end."""

    def __init__(self) -> None:
        self.prepare: list[Callable[[Clusters], None]] = []
        """Functions that get the snapshots of all clusters after each new one, on a collector's thread; one call at a
        time."""
        self._running: dict[str, ClusterCollector] = {}
        self._wanted: dict[str, CollectedCluster] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changing = asyncio.Lock()
        self._has_failed = asyncio.Event()
        self._preparing = Lock()
        self._whole = Clusters(())

    def latest(self) -> dict[str, ClusterSnapshot | None]:
        """The last snapshot by cluster, in the order of the settings; None before the end of the first poll."""
        return {cluster: each.latest() for cluster, each in self._running.items()}

    def whole(self) -> Clusters:
        """The last snapshots as one object, which changes with any of them."""
        latest = tuple(each for each in self.latest().values() if each is not None)
        whole = self._whole
        if whole.clusters != latest:
            whole = self._whole = Clusters(latest)
        return whole

    def describe(self, cluster: str, group: str) -> Group:
        """Asks the cluster's brokers for a group and its members; blocks, on any thread. Raises KctlError."""
        return self._running[cluster].describe(group)

    def prepared(self, wanted: Iterable[CollectedCluster]) -> Prepared:
        """Checks settings without applying them. Raises ConfigError for an invalid pattern."""
        by_name = {each.cluster: each for each in wanted}
        changed = {name: ClusterCollector(each) for name, each in by_name.items() if self._wanted.get(name) != each}
        return Prepared(by_name, changed)

    async def use(self, prepared: Prepared) -> None:
        """Collects these clusters from now on.

        Unchanged ones continue. If only the settings for collecting or judging changed, the knowledge about the groups
        stays. Returns when unneeded collectors are closed, which takes a few request time-outs if brokers hang.
        """
        async with self._changing:
            old, self._wanted = self._wanted, dict(prepared.wanted)
            running = dict(self._running)
            servers = {name: each.access.servers for name, each in self._wanted.items()}
            gone = [name for name, each in old.items() if servers.get(name) != each.access.servers]
            work = [self._closed(self._tasks.pop(name, None), running.pop(name)) for name in gone]
            adopted = {name: each for name, each in prepared.collectors.items() if name in running}
            self._running = {name: running.get(name) or prepared.collectors[name] for name in self._wanted}
            for name in prepared.collectors.keys() - adopted.keys():
                self._start(name)
            work += [self._adopted(name, each) for name, each in adopted.items()]
            await asyncio.gather(*work)

    async def until_failed(self) -> None:
        """Waits until a collector ends by itself, which only a bug can cause."""
        await self._has_failed.wait()

    async def close(self) -> None:
        """Waits for running polls, for a few request time-outs at most."""
        await self.use(Prepared({}, {}))

    def _start(self, name: str) -> None:
        collector = self._running[name]
        collector.prepare[:] = [partial(self._prepare, collector)]
        task = self._tasks[name] = asyncio.create_task(collector.run(), name=f"cluster {name}")
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.critical("action=failed task=%s", task.get_name(), exc_info=task.exception())
            self._has_failed.set()

    def _prepare(self, collector: ClusterCollector, _: ClusterSnapshot) -> None:
        if self._running.get(collector.cluster) is not collector:
            return  # the last poll of a collector that is being closed
        with self._preparing:
            whole = self.whole()
            for prepare in self.prepare:
                prepare(whole)

    async def _adopted(self, name: str, settings: ClusterCollector) -> None:
        await _stopped(self._tasks.pop(name, None))
        await self._running[name].adopt(settings)
        self._start(name)

    async def _closed(self, task: asyncio.Task[None] | None, collector: ClusterCollector) -> None:
        await _stopped(task)
        await collector.close()


async def _stopped(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
