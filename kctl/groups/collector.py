"""Periodically takes snapshots of a cluster's groups. Each cluster has its own collector with its own thread, so that
a silent cluster does not delay other clusters."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from threading import Lock

from kctl.checkpoints.watcher import CheckpointWatcher
from kctl.config.clusters import CheckpointSection
from kctl.config.sections import ExporterSection, StatusSection
from kctl.errors import ConfigError, KctlError
from kctl.groups.known_groups import KnownGroups, bounded, detail_of, fits, name_filter
from kctl.groups.snapshot import NOTHING_KNOWN, Clusters, ClusterSnapshot, GroupColumns, GroupSnapshot
from kctl.kafka.client.access import ClusterAccess
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.groups import Group, describe_groups
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.kafka.polls.cluster_reading import PARTS
from kctl.kafka.polls.group_sources import AllGroups
from kctl.kafka.polls.log_reader import WantedLogs
from kctl.reduce.base import GroupStats
from kctl.status import Assessment, Assessor, Owner, Status, StatusRules, allowed_lag
from kctl.status.assessments import of_groups
from kctl.status.owners import Owners

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CollectedCluster:
    cluster: str
    access: ClusterAccess
    exporter: ExporterSection
    status: StatusSection
    excluded: Collection[str] = ()
    checkpoints: Mapping[str, CheckpointSection] = field(default_factory=dict)
    """Checkpoints by the groups that represent them; a Kafka group with such a name is not collected."""


class ClusterCollector:
    """Collects one cluster. Belongs to one event loop, but any thread may read `latest`. Call `close` at the end."""

    def __init__(self, collected: CollectedCluster) -> None:
        """Sends no request before `run` or `collect`. Raises ConfigError for an invalid pattern."""
        exporter, status, excluded = collected.exporter, collected.status, collected.excluded
        checkpoints = collected.checkpoints
        try:
            wants = name_filter(exporter.groups, exporter.groups_except)
            wants_topic = name_filter(exporter.topics, exporter.topics_except)
            self._reads_committed = fits(exporter.read_committed)
            self._detail_of = detail_of(exporter.without_partitions, exporter.without_topics)
        except ValueError as error:
            raise ConfigError(f"exporter: {error}") from None
        self.cluster = collected.cluster
        self._watcher = CheckpointWatcher(checkpoints)
        self.describe: Callable[[str], Group] = partial(
            _described, self._watcher, collected.access, exporter.timeout_seconds
        )
        """Asks the brokers for a group and its members, by a connection of its own; blocks and raises KctlError."""
        self.prepare: list[Callable[[ClusterSnapshot], None]] = []
        """Functions that get every snapshot, on the collector's thread, after it has become the latest."""
        self._reader = ClusterReader(
            collected.access,
            exporter.timeout_seconds,
            AllGroups(lambda name: name not in excluded and name not in checkpoints and wants(name)),
            WantedLogs(reads_committed=self._reads_committed),
            wants_topic=wants_topic,
            add_more=self._watcher.add_to,
        )
        self._settings = exporter
        rules = StatusRules(status.window_seconds, status.hold_seconds, status.batch_limit_seconds)
        self._rules = rules, partial(allowed_lag, status.allowed_lag)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"kctl-groups-{self.cluster}")
        self._known = KnownGroups(exporter.stale_after_seconds)
        self._assessor = Assessor(*self._rules)
        self._began_at = time.monotonic()
        self._is_ready = False
        self._errors: dict[str, str] = {}
        self._last_success: dict[str, float] = {}
        self._sequence = 0
        self.latest: ClusterSnapshot | None = None

    async def run(self) -> None:
        """Collects every `interval_seconds` until cancelled. If a collection takes longer than half the interval, the
        next pause lasts as long as the collection."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await loop.run_in_executor(self._thread, self.collect)
            except Exception:  # a boundary: the last snapshot ages, and a master continues with its own group
                log.exception("action=groups_failed cluster=%s", self.cluster)
            took = loop.time() - started
            await asyncio.sleep(max(self._settings.interval_seconds - took, took))

    async def adopt(self, other: ClusterCollector) -> None:
        """Takes over the settings of `other`, a collector that has never run, and closes `other`. Keeps what this
        collector knows about the groups. Stop `run` before you call `adopt`, which waits for the last poll to end."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._adopt, other)
        await other.close()

    async def close(self) -> None:
        """Closes the connections after any running poll. If brokers hang, this takes a few request time-outs."""
        self._watcher.close()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._reader.close)
        self._thread.shutdown(wait=False)

    def collect(self) -> ClusterSnapshot:
        started, unix = time.monotonic(), time.time()
        self._watcher.start()
        self._poll(started, unix)
        now = time.monotonic()
        self._known.forget(now)
        self._is_ready = self._is_ready or not self._errors or now - self._began_at > self._settings.stale_after_seconds
        groups, columns = self._groups(now) if self._is_ready else ((), NOTHING_KNOWN)
        groups, cut = bounded(groups, self._settings.max_partitions)
        self._sequence += 1
        snapshot = ClusterSnapshot(
            cluster=self.cluster,
            groups=groups,
            taken_at=now,
            taken_at_unix=time.time(),
            collect_seconds=time.monotonic() - started,
            up={part: part not in self._errors for part in PARTS},
            last_success=dict(self._last_success),
            errors=dict(self._errors),
            cut_groups=cut,
            columns=columns,
            is_ready=self._is_ready,
            sequence=self._sequence,
        )
        self.latest = snapshot
        for prepare in self.prepare:
            prepare(snapshot)
        return snapshot

    def _adopt(self, other: ClusterCollector) -> None:
        self._assessor.adopt(*other._rules)
        self._known.stale_after_seconds = other._settings.stale_after_seconds
        self._settings, self.describe = other._settings, other.describe
        self._reads_committed, self._detail_of = other._reads_committed, other._detail_of
        other._watcher.take_over(self._watcher)
        self._reader, other._reader = other._reader, self._reader
        self._watcher, other._watcher = other._watcher, self._watcher

    def _poll(self, at: float, unix: float) -> None:
        try:
            reading = self._reader.read()
        except Exception as error:  # a boundary: a failing client library must not stop the process
            if not isinstance(error, KctlError):
                log.exception("action=groups_failed cluster=%s", self.cluster)
            self._failed(dict.fromkeys(PARTS, str(error) or type(error).__name__))
            return
        self._known.add(reading, at)
        failures = reading.failures()
        self._last_success.update((part, unix) for part in PARTS if part not in failures)
        self._failed(failures)

    def _failed(self, errors: dict[str, str]) -> None:
        if errors and not self._errors:
            why = "; ".join(f"{part}: {why}" for part, why in sorted(errors.items()))
            log.warning("action=groups_incomplete cluster=%s error=%s", self.cluster, why)
        elif self._errors and not errors:
            log.info("action=groups_back cluster=%s", self.cluster)
        self._errors = errors

    def _groups(self, now: float) -> tuple[tuple[GroupSnapshot, ...], GroupColumns]:
        known, unix = self._known, time.time()
        columns = known.partitions(now, self._reads_committed)
        groups = [known.groups[name] for name in columns.names.groups]
        stats = [GroupStats.of(group.listed.state, known.members(group, now)) for group in groups]
        watcher = self._watcher
        owners = [
            watcher.owner(each.listed.group) or _owner(each.listed.protocol, of_each)
            for each, of_each in zip(groups, stats, strict=True)
        ]
        assessments = self._assessor.assess(columns, Owners.of(owners, columns.names.spread), unix)
        begins = columns.names.begins
        snapshots = tuple(
            GroupSnapshot(
                cluster=self.cluster,
                group=group.listed.group,
                partitions=columns.of_group(number),
                assessments=assessments[begins[number] : begins[number + 1]],
                assessment=_because(of_group, watcher.error(group.listed.group)),
                lag=lag,
                stats=of_each,
                type=group.listed.type,
                coordinator=group.listed.coordinator if group.listed.coordinator >= 0 else None,
                detail=self._detail_of(group.listed.group),
                age_seconds=age,
            )
            for number, (group, lag, of_group, of_each, age) in enumerate(
                zip(
                    groups,
                    columns.lags(),
                    of_groups(assessments, begins, columns.names.name),
                    stats,
                    columns.oldest(),
                    strict=True,
                )
            )
        )
        return snapshots, GroupColumns(columns, assessments)


def _because(assessment: Assessment, error: str | None) -> Assessment:
    return assessment if error is None or assessment.status is not Status.UNKNOWN else replace(assessment, reason=error)


def _described(watcher: CheckpointWatcher, access: ClusterAccess, timeout_seconds: float, name: str) -> Group:
    if watcher.has(name):
        return Group(name, None)
    with ClusterConnection(access, timeout_seconds) as connection:
        connection.open()
        return describe_groups(connection, [name])[0]


@lru_cache(1000)  # one shared object is fast to compare
def _owner(protocol_type: str | None, stats: GroupStats | None) -> Owner:
    # Without a protocol type and members, the clients choose their partitions themselves, so their number is unknown.
    if stats is None or not (protocol_type or stats.members):
        return Owner(None, None, None)
    return Owner(None, "rebalancing" if stats.is_rebalancing else None, None, members=stats.members)


@dataclass(frozen=True, slots=True)
class Prepared:
    wanted: Mapping[str, CollectedCluster]
    collectors: Mapping[str, ClusterCollector]


class Collectors:
    """Collectors of all clusters. Only `latest`, `whole` and `describe` are thread-safe. Call `close` at the end."""

    def __init__(self) -> None:
        self.prepare: list[Callable[[Clusters], None]] = []
        """Called with all clusters' snapshots after each new one, one call at a time, on a collector's thread."""
        self._running: dict[str, ClusterCollector] = {}
        self._wanted: dict[str, CollectedCluster] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changing = asyncio.Lock()
        self._has_failed = asyncio.Event()
        self._preparing = Lock()
        self._whole = Clusters(())

    def latest(self) -> dict[str, ClusterSnapshot | None]:
        """Returns, in the order of the settings, each cluster's latest snapshot, or None until its first poll ends."""
        return {cluster: each.latest for cluster, each in self._running.items()}

    def whole(self) -> Clusters:
        """Returns the latest snapshots as one object. Returns the same object until a cluster has a new snapshot."""
        latest = tuple(each for each in self.latest().values() if each is not None)
        whole = self._whole
        if whole.clusters != latest:
            whole = self._whole = Clusters(latest)
        return whole

    def describe(self, cluster: str, group: str) -> Group:
        """Asks the brokers for a group and its members, and blocks until they answer. Raises KctlError."""
        return self._running[cluster].describe(group)

    def prepared(self, wanted: Iterable[CollectedCluster]) -> Prepared:
        """Checks settings without applying them. Raises ConfigError for an invalid pattern."""
        by_name = {each.cluster: each for each in wanted}
        changed = {name: ClusterCollector(each) for name, each in by_name.items() if self._wanted.get(name) != each}
        return Prepared(by_name, changed)

    async def use(self, prepared: Prepared) -> None:
        """Collects the prepared clusters from now on.

        Unchanged clusters continue. If a changed cluster has the same servers, the collector keeps its data about the
        groups. Closes the collectors of clusters that are removed or have other servers. If brokers hang, closing takes
        a few request time-outs.
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
        """Waits until a collector ends because of a bug."""
        await self._has_failed.wait()

    async def close(self) -> None:
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
