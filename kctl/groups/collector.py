"""The collector of a cluster: takes snapshots periodically on its own thread; a scrape reads the last one. Each cluster
has its own collector, so a silent cluster does not delay others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from kctl.checkpoints.watcher import CheckpointWatcher
from kctl.config.clusters import CheckpointSection
from kctl.config.sections import ExporterSection, StatusSection
from kctl.errors import ConfigError, KctlError
from kctl.groups.filters import NameFilter, bounded, detail_of, fits
from kctl.groups.known_groups import KnownGroups
from kctl.groups.snapshot import NOTHING_KNOWN, ClusterSnapshot, GroupColumns, GroupSnapshot
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

_KEPT_OWNERS = 1000


@dataclass(frozen=True, slots=True)
class CollectedCluster:
    cluster: str
    access: ClusterAccess
    exporter: ExporterSection
    status: StatusSection
    excluded: Collection[str] = ()
    checkpoints: Mapping[str, CheckpointSection] = field(default_factory=dict)
    """By the group that represents each checkpoint; a group of Kafka with this name is not collected."""


class ClusterCollector:
    """Collects one cluster. Belongs to one event loop; any thread may read `latest`. Call `close` at the end."""

    def __init__(self, collected: CollectedCluster) -> None:
        """Makes no request before `run` or `collect`. Raises ConfigError for an invalid pattern."""
        exporter, status, excluded = collected.exporter, collected.status, collected.excluded
        checkpoints = collected.checkpoints
        try:
            wants = NameFilter(exporter.groups, exporter.groups_except)
            wants_topic = NameFilter(exporter.topics, exporter.topics_except)
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
        """Functions that are given every snapshot, on the collector's thread, after it has become the last one."""
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
        self._latest: ClusterSnapshot | None = None

    def latest(self) -> ClusterSnapshot | None:
        return self._latest

    async def run(self) -> None:
        """Collects every `interval_seconds` until cancelled. If a collection takes longer than half the interval, the
        pause after it is as long as the collection."""
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
        """Takes over the settings of `other`, which has never run, and keeps the knowledge about the groups.

        Stop `run` first. Waits for a running poll, and closes `other`.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._adopt, other)
        await other.close()

    async def close(self) -> None:
        """Waits for a running poll, for a few request time-outs at most."""
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
        self._latest = snapshot
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
        raise KctlError(f"{name} is a checkpoint, which has no members")
    with ClusterConnection(access, timeout_seconds) as connection:
        connection.open()
        return describe_groups(connection, [name])[0]


@lru_cache(_KEPT_OWNERS)
def _owner(protocol_type: str | None, stats: GroupStats | None) -> Owner:
    """The owner that represents a group; cached, because comparing the same object is fast.

    If clients choose their partitions themselves, the coordinator knows no protocol type and no members.
    """
    if stats is None or not (protocol_type or stats.members):
        return Owner(None, None, None)
    return Owner(None, "rebalancing" if stats.is_rebalancing else None, None, members=stats.members)
