"""`kctl exporter` from a configuration to an exit code: all groups of some clusters, polled, judged and served."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Coroutine
from threading import Lock

from kctl.children import PRIVATE
from kctl.config.exporter import ExporterConfig
from kctl.exporter import Exposition
from kctl.groups.collector import ClusterCollector
from kctl.groups.snapshot import Clusters, ClusterSnapshot
from kctl.http import GroupsApp, GroupsSource, HttpServer, access_of, bind
from kctl.kafka.access import of_cluster
from kctl.master.notify import notify, pet_watchdog
from kctl.start.interpreter import tune_interpreter
from kctl.start.signals import StopSignals

__all__ = ["run_exporter"]

log = logging.getLogger(__name__)


def run_exporter(config: ExporterConfig) -> int:
    """Polls and serves until SIGTERM or SIGINT; returns 0 after an orderly stop, 1 when a part has failed. Brokers that
    do not answer are no failure. Logging is the caller's to set up.

    Raises:
        StartError: a port is taken, and nothing was started. Also ConfigError.
    """
    os.umask(PRIVATE)
    return asyncio.run(_run(config))


class _Latest:
    """The last snapshots of all clusters as one, which is another one as soon as any of them is."""

    def __init__(self, collectors: list[ClusterCollector]) -> None:
        self._collectors = collectors
        self._whole = Clusters(())

    def snapshots(self) -> dict[str, ClusterSnapshot | None]:
        return {each.cluster: each.latest() for each in self._collectors}

    def __call__(self) -> Clusters:
        """May be called on any thread."""
        latest = tuple(each for each in self.snapshots().values() if each is not None)
        whole = self._whole
        if whole.clusters != latest:
            whole = self._whole = Clusters(latest)
        return whole


async def _run(config: ExporterConfig) -> int:
    # kafka-python logs each lost connection many times over; what an operator needs of it, the collector logs once.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    tune_interpreter()
    collectors = [
        ClusterCollector.of(name, of_cluster(name, cluster, config.path), config.exporter, config.status)
        for name, cluster in config.clusters.items()
    ]
    access = access_of(config.http, config.path.parent)
    latest = _Latest(collectors)
    exposition = Exposition(latest, has_alias=config.http.lag_alias)
    rendering = Lock()

    def prepare(_: ClusterSnapshot) -> None:
        with rendering:
            exposition.prepare(latest())

    for collector in collectors:
        collector.prepare.append(prepare)
    by_name = {collector.cluster: collector for collector in collectors}
    source = GroupsSource(
        latest=latest.snapshots,
        describe=lambda cluster, group: by_name[cluster].describe(group),
        render_metrics=exposition.render,
        ready_metrics=exposition.ready,
    )
    async with contextlib.AsyncExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        for collector in collectors:
            stack.push_async_callback(collector.close)
        http_socket = stack.enter_context(contextlib.closing(bind(config.http.host, config.http.port)))
        http = HttpServer(GroupsApp(source, access), http_socket, access)
        return await _serve(collectors, http, signals)


async def _serve(collectors: list[ClusterCollector], http: HttpServer, signals: StopSignals) -> int:
    tasks = [_task(http.serve(), "http"), _task(pet_watchdog(), "watchdog")]
    tasks += [_task(collector.run(), f"cluster {collector.cluster}") for collector in collectors]
    clusters = ",".join(collector.cluster for collector in collectors)
    log.info("action=running clusters=%s http=%s", clusters, http.url)
    notify("READY=1", f"STATUS={clusters}, {http.url}")
    stop = _task(_set(signals.stop), "signal")
    done, _ = await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
    failed = [task for task in tasks if task in done]
    for task in failed:
        log.critical("action=failed task=%s: the exporter stops", task.get_name(), exc_info=task.exception())
    notify("STOPPING=1")
    http.stop()
    await asyncio.wait([tasks[0]], timeout=2)
    for task in (*tasks, stop):
        task.cancel()
    await asyncio.gather(*tasks, stop, return_exceptions=True)
    log.info("action=ended")
    return 1 if failed else 0


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _task(work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
    return asyncio.create_task(work, name=name)
