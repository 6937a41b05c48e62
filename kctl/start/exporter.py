"""`kctl exporter`: reads and judges the groups of some clusters, and serves the results over HTTP."""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from kctl.children import PRIVATE
from kctl.config.clusters import by_group
from kctl.config.load import ExporterConfig
from kctl.errors import KctlError
from kctl.exporter import Exposition
from kctl.groups.advising import GroupAdvisers
from kctl.groups.collector import CollectedCluster, Collectors
from kctl.http.access import access_of
from kctl.http.groups_api import GroupsSource, groups_app
from kctl.http.server import HttpServer, bind
from kctl.kafka.client.access import of_cluster
from kctl.start.signals import StopSignals, end, notify, pet_watchdog, task, tune_process

log = logging.getLogger(__name__)


def run_exporter(config: ExporterConfig, reread: Callable[[], ExporterConfig]) -> int:
    """Runs the exporter until SIGTERM or SIGINT. Returns 0 after an orderly stop, or 1 if a part failed. SIGHUP reloads
    with `reread`. A failed reload is only logged. The caller sets up logging. Raises StartError or ConfigError."""
    os.umask(PRIVATE)
    return asyncio.run(_run(config, reread))


async def _run(config: ExporterConfig, reread: Callable[[], ExporterConfig]) -> int:
    tune_process()
    collectors = Collectors()
    prepared = collectors.prepared(_wanted(config))
    access = access_of(config.http, config.path.parent, others_may_read=True)
    exposition = Exposition(collectors.whole)
    advisers = GroupAdvisers()
    collectors.prepare += [exposition.prepare, advisers.prepare]
    source = GroupsSource(
        latest=collectors.latest, describe=collectors.describe, advisers=advisers, metrics=exposition.page
    )
    async with contextlib.AsyncExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        http_socket = stack.enter_context(contextlib.closing(bind(config.http.host, config.http.port)))
        stack.push_async_callback(collectors.close)
        await collectors.use(prepared)
        http = HttpServer(groups_app(source, access), http_socket, access)
        return await _Exporter(config, reread, collectors, http).run(signals)


@dataclass(slots=True)
class _Exporter:
    config: ExporterConfig
    reread: Callable[[], ExporterConfig]
    collectors: Collectors
    http: HttpServer

    async def run(self, signals: StopSignals) -> int:
        serving = task(self.http.serve(), "http")
        tasks = [
            serving,
            task(pet_watchdog(), "watchdog"),
            task(self.collectors.until_failed(), "clusters"),
            task(self._reload_when(signals.reload), "reload"),
        ]
        log.info("action=running clusters=%s http=%s", self._clusters, self.http.url)
        self._notify_ready()
        stop = task(signals.stop.wait(), "signal")
        done, _ = await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
        failed = [each for each in tasks if each in done]
        for each in failed:
            log.critical("action=failed task=%s: the exporter stops", each.get_name(), exc_info=each.exception())
        notify("STOPPING=1")
        self.http.stop()
        await asyncio.wait([serving], timeout=2)
        await end([*tasks, stop])
        log.info("action=ended")
        return 1 if failed else 0

    @property
    def _clusters(self) -> str:
        return ",".join(self.config.clusters)

    def _notify_ready(self) -> None:
        notify("READY=1", f"STATUS={self._clusters}, {self.http.url}")

    async def _reload_when(self, hangup: asyncio.Event) -> None:
        while True:
            await hangup.wait()
            hangup.clear()
            notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
            try:
                await self._reload()
            except KctlError as error:
                log.error("action=reload_failed error=%s: nothing changed", error)
            self._notify_ready()

    async def _reload(self) -> None:
        config = await asyncio.to_thread(self.reread)
        prepared = self.collectors.prepared(_wanted(config))
        # If `access_of` or `use` raises ConfigError, nothing has changed yet.
        renewed = self.http.use(access_of(config.http, config.path.parent, others_may_read=True))
        logging.getLogger().setLevel(config.log.level)
        added, removed = _difference(config, self.config), _difference(self.config, config)
        changed = ",".join(name for name in prepared.collectors if name in self.config.clusters)
        for name in ("host", "port"):
            if getattr(self.config.http, name) != getattr(config.http, name):
                log.warning("action=reload setting=http.%s: takes effect when the exporter restarts", name)
        self.config = config
        await self.collectors.use(prepared)
        log.info(
            "action=reloaded clusters=%s added=%s removed=%s changed=%s http=%s",
            *(self._clusters, added or "-", removed or "-", changed or "-", ",".join(renewed) or "-"),
        )


def _wanted(config: ExporterConfig) -> list[CollectedCluster]:
    wanted = []
    for name, cluster in config.clusters.items():
        checkpoints = by_group({key: each for key, each in config.checkpoints.items() if each.cluster == name})
        access = of_cluster(name, cluster, config.path)
        wanted.append(CollectedCluster(name, access, config.exporter, config.status, checkpoints=checkpoints))
    return wanted


def _difference(config: ExporterConfig, without: ExporterConfig) -> str:
    return ",".join(name for name in config.clusters if name not in without.clusters)
