"""The main thread's loop. Each turn passes events to the `lifecycle` and performs the returned actions.

A turn polls the group, executes operations, and checks queries, storage and partition logs. It never waits long. A
revocation runs in a thread while the main thread waits in `poll`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import TopicPartition
from kafka.errors import KafkaError

from kctl_agent.errors import StorageError
from kctl_agent.process import deadline
from kctl_agent.process.outages import disk_error
from kctl_agent.process.troubles import GRACE_SECONDS
from kctl_agent.replies.workers import Outside
from kctl_agent.rpc.operations import Inbox, is_paused
from kctl_agent.spark.driver import DriverLost
from kctl_agent.storage.base import OffsetStore, Storage
from kctl_agent.worker.consumer_group.commits import refusal
from kctl_agent.worker.consumer_group.membership import MemberFenced, MemberLost, Membership, partition_names, topics_of
from kctl_agent.worker.lifecycle import machine
from kctl_agent.worker.lifecycle.machine import Action, Lifecycle, LogsObserved
from kctl_agent.worker.lifecycle.query_groups import Group
from kctl_agent.worker.main_thread.query_start import JVM_SECONDS, QueryStart
from kctl_agent.worker.main_thread.requests import Requests, Seeking
from kctl_agent.worker.offsets.brokers import Brokers, BrokerView, BrokerWatcher
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.offsets.start_offsets import StartOffsets
from kctl_agent.worker.query.batch_failure import BatchFailure
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.settings import WorkerSettings
from kctl_agent.worker.stats import Sources, WorkerStats

if TYPE_CHECKING:
    from kctl_agent.storage.lake.dead_letters.requeue import PutBack
    from kctl_agent.worker.main_thread.requeuing import Requeuing


STORAGE_CHECK_SECONDS = 5.0  # interval for a worker without a batch


@dataclass(eq=False)
class LogChecks:
    """Drains all queries if a log was truncated below a query's position, or if a stored offset is missing or below
    that position. The next queries get new start offsets."""

    _pipeline: Pipeline
    _brokers: Brokers
    _storage: OffsetStore
    _progress: ReadProgress
    _compared: BrokerView | None = None
    _check_at: float = 0.0

    def check(self, running: Mapping[TopicPartition, KafkaSource], view: BrokerView) -> None:
        self._compare_logs(running, view)
        self._check_storage()

    def _compare_logs(self, running: Mapping[TopicPartition, KafkaSource], view: BrokerView) -> None:
        if view is self._compared:
            return
        self._compared = view
        epochs = self._progress.epochs
        logs = {tp: seen for tp, seen in view.logs.items() if tp in running}
        try:
            diverged, unknown = self._brokers.divergences_of_each(epochs.known, logs)
        except KafkaError as error:
            log.debug("the identity of the log is not known yet: %s", error)
            return
        planned = self._pipeline.planned
        cut = {tp for tp, offset in diverged.items() if offset < planned.get(tp, offset)}
        if cut:  # a log was truncated below a position
            self._pipeline.drain()
        epochs.observe({tp: seen for tp, seen in logs.items() if tp not in cut and tp not in unknown})

    def _check_storage(self) -> None:
        if time.monotonic() < self._check_at or self._pipeline.batch_started_at is not None:
            return
        self._check_at = time.monotonic() + STORAGE_CHECK_SECONDS
        positions = self._pipeline.positions  # read before the stored offsets, which are never lower
        try:
            stored_offsets = self._storage.stored_offsets([tuple(tp) for tp in positions])
        except StorageError as error:
            log.debug("it is not known whether the storage has gone back in time: %s", error)
            return
        if any(
            (stored := stored_offsets.get(tuple(tp))) is None or stored.next < position
            for tp, position in positions.items()
        ):
            self._pipeline.drain()


log = logging.getLogger("kctl_agent.worker")

POLL_SECONDS = 0.1
TURN_SHARE = 0.8
"""Part of `kafka.max_poll_interval_seconds` for all waits of a turn; the rest is for poll and commits."""
LEADERLESS_SECONDS = 15.0
"""A query leaves out a partition that has had no leader for this long; a dead leader is noticed after 9 s."""
ABANDON_SECONDS = 30.0
"""A batch that has run this long while a leader is missing is waiting for its records, and is abandoned."""
REQUEUE_SECONDS = 5.0
"""When a worker stops, the requeuing of dead letters gets this long, after the worker has left the group."""
RESUME_FRACTION = 0.8
"""A throttled worker resumes when the storage holds less than this part of its limit."""


@dataclass(eq=False, repr=False)
class MainLoop:
    """Performs a worker's turns. Only the main thread calls `turn` and `close`."""

    _settings: WorkerSettings
    _pipeline: Pipeline
    brokers: InitVar[Brokers]
    storage: InitVar[OffsetStore]
    _stats: WorkerStats
    _inbox: Inbox
    _stored: deque[Group]  # Spark's callback threads add the partitions of stored batches

    def __post_init__(self, brokers: Brokers, storage: OffsetStore) -> None:
        settings, pipeline, stats = self._settings, self._pipeline, self._stats
        self._describe = brokers.describe
        self._turn_seconds = TURN_SHARE * settings.kafka.max_poll_interval_seconds
        self._begun = deadline.NEVER
        self._progress = ReadProgress()
        self._lifecycle = Lifecycle()
        self._performers = self._made_performers()
        self._stats.enter(self._lifecycle.state)
        start_offsets = StartOffsets(settings, storage, brokers)
        progress = self._progress
        self._membership = Membership(
            settings.kafka,
            settings.kafka.client_id or settings.name,
            self._on_revoked,
            self._on_lost,
            progress.commits.done,
            lambda tp: progress.note(tp, start_offsets.identity),
        )
        member = self._membership
        watcher = self._watcher = BrokerWatcher(brokers, lambda: member.partitions, self._on_watched)
        pipeline.log_ends = lambda: watcher.view.ends
        pipeline.happened = stats.happened
        pipeline.is_own_fault = lambda failure: self._explained(failure)[1] is None
        self._committer = Committer(member, progress, stats, self._describe)
        self._query_start = QueryStart(
            self._lifecycle, pipeline, start_offsets, member, progress, stats, self._describe
        )
        self._checks = LogChecks(pipeline, brokers, storage, progress)
        seeking = Seeking(pipeline, brokers, storage, member, progress, stats)
        self._requests = Requests(
            settings.name, self._inbox, member, self._lifecycle, seeking, self._perform, self._on_lost, self._describe
        )
        self._requeuing = self._made_requeuing(storage)
        stats.sources = Sources(member, self._watcher, pipeline, progress, settings.kafka.auto_offset_reset)
        self._watcher.start()

    def turn(self) -> None:
        """Performs one turn. Raises errors that end the worker."""
        self._begun = deadline.begin(self._turn_seconds)
        try:
            self._poll()
            self._requests.carry_out()
            if not self._lifecycle.is_seeking:
                self._check_queries()
            if self._requeuing is not None:
                self._requeuing.turn(time.monotonic())
        except MemberFenced as error:
            self._perform(self._lifecycle.fenced(str(error)))
            raise

    def close(self) -> None:
        """Waits for running batches, unless the last turn exceeded its deadline. Commits, and leaves the group."""
        if deadline.left() > 0:
            self._begun = deadline.begin(self._turn_seconds)
        self._perform(self._lifecycle.stop_requested())
        self._watcher.stop()
        self._membership.close()  # calls _on_revoked, commits, leaves
        if self._requeuing is not None:
            self._requeuing.close(REQUEUE_SECONDS)

    def _made_requeuing(self, storage: OffsetStore) -> Requeuing | None:
        if isinstance(storage, Storage):
            return None
        from kctl_agent.storage.lake.storage import LakeStorage  # imports delta-rs, which only a table needs
        from kctl_agent.worker.main_thread.requeuing import Requeuing

        assert isinstance(storage, LakeStorage)
        pipeline, member, first = self._pipeline, self._membership, TopicPartition(self._settings.kafka.topics[0], 0)

        def begin() -> Callable[[], PutBack | None] | None:
            if first not in member.partitions:  # only its owner puts dead letters back
                return None
            put, session = pipeline.requeue_put(), pipeline.session
            return None if put is None or session is None else partial(put.put_next, session)

        return Requeuing(storage.dead_letter_table().folder, begin, self._stats)

    def _poll(self) -> None:
        try:
            self._membership.poll(POLL_SECONDS)
        except KafkaError as error:
            text = self._describe(error, f"group {self._settings.kafka.group} cannot be polled")
            self._stats.failing("poll", text, "brokers")
        else:
            self._stats.works("poll")
        member = self._membership
        self._perform(self._lifecycle.polled(member.partitions, is_rebalancing=member.is_rebalancing))

    def _check_queries(self) -> None:
        view = self._watcher.view
        self._observe(view)
        self._perform(self._lifecycle.tick(time.monotonic()))
        self._stats.leaves_out(self._lifecycle.left_out(GRACE_SECONDS, time.monotonic()))
        self._stats.isolates(self._lifecycle.isolated())
        running = self._pipeline.sources
        if running is not None:
            if self._lifecycle.is_complete and self._pipeline.has_settled(GRACE_SECONDS):
                # Nothing has failed for a while; no batch may come for long that could show it.
                self._stats.works("query")
            self._checks.check(running, view)
        if deadline.allows(JVM_SECONDS) and self._is_connected():
            self._perform(self._lifecycle.start_due(time.monotonic()))

    def _is_connected(self) -> bool:
        why = self._pipeline.connect()
        if why is None:
            self._stats.works("engine")
            return True
        self._stats.failing("engine", why, "engine")
        return False

    def _observe(self, view: BrokerView) -> None:
        lifecycle, scopes = self._lifecycle, self._inbox.paused
        lifecycle.paused(
            frozenset(tp for tp in self._membership.partitions if is_paused(scopes, tp.topic, tp.partition))
        )
        while self._stored:
            lifecycle.batch_stored(self._stored.popleft())
        lifecycle.draining(self._pipeline.draining)
        lifecycle.read_carefully(self._pipeline.cleared, self._pipeline.unreadable)
        try:
            for group, failure in self._pipeline.failures().items():
                lifecycle.query_failed(group, *self._explained(failure))
        except DriverLost as error:
            self._perform(lifecycle.driver_ended(str(error)))
        lifecycle.storage_counted(self._stats.why_full(1.0), self._stats.why_full(RESUME_FRACTION))
        reading, running = self._progress.reading, lifecycle.reading
        lifecycle.logs_observed(
            LogsObserved(
                answered=frozenset(view.ends),
                is_recreated=reading.is_recreated(running, view),
                is_leaderless=reading.is_without_leader(running, view, LEADERLESS_SECONDS),
                is_hopeless=reading.is_without_leader(running, view, ABANDON_SECONDS),
            )
        )

    def _perform(self, found: Iterable[Action]) -> None:
        for action in found:
            self._performers[type(action)](action)

    def _made_performers(self) -> dict[type[Action], Callable[[Any], None]]:
        return {
            machine.Enter: lambda action: self._stats.enter(action.state),
            machine.Commit: self._commit,
            machine.StartQuery: self._start_query,
            machine.Drain: self._drain,
            machine.StopQuery: self._stop_query,
            machine.Throttle: lambda action: self._stats.is_throttled_by(action.why),
            machine.ReportEvent: lambda action: self._stats.happened(action.kind, action.text),
            machine.ReportRetry: self._report_retry,
            machine.ReportQueryFailed: lambda action: self._stats.query_failed(action.why, is_first=action.is_first),
        }

    def _commit(self, action: machine.Commit) -> None:
        positions = {tp: at for tp, at in self._pipeline.positions.items() if tp in action.partitions}
        try:
            self._committer.commit(positions, time.monotonic())
        except MemberLost:
            self._on_lost()

    def _start_query(self, action: machine.StartQuery) -> None:
        try:
            follows = self._query_start.start(action.group, is_careful=action.is_careful)
        except MemberLost:
            self._on_lost()
        else:
            self._perform(follows)

    def _drain(self, action: machine.Drain) -> None:
        if self._pipeline.drain(action.group):
            self._perform(self._lifecycle.drained(action.group))

    def _stop_query(self, action: machine.StopQuery) -> None:
        wait_seconds = self._settings.pipeline.revoke_timeout_seconds if action.is_waited_for else 0.0
        self._progress.reached(self._pipeline.stop(wait_seconds, action.group))

    def _explained(self, failure: BatchFailure) -> tuple[str, Outside | None]:
        if failure.is_storage:
            return failure.text, failure.outside
        known = self._stats.outside(besides="query")
        if known is not None:
            return failure.text, known
        full = disk_error(self._settings.scratch_dir)
        return (failure.text, None) if full is None else (f"{full}; {failure.text}", "disk")

    def _report_retry(self, action: machine.ReportRetry) -> None:
        if action.failures > 1 or action.outside is not None:
            why, is_own = f"{action.why}; next try in {action.seconds:.0f} s", action.outside is None
            self._stats.failing("query", why, action.outside, is_grave=is_own)
        else:  # only logged, because a retry may succeed
            log.warning("%s; next try in %.0f s", action.why, action.seconds)

    def _on_watched(self, why: str | None) -> None:  # on the watcher's thread
        if why is None:
            self._stats.works("offsets")
        else:
            self._stats.failing("offsets", why, "brokers")

    def _on_revoked(self, partitions: set[TopicPartition]) -> Mapping[TopicPartition, int]:  # in a thread
        if not partitions:
            return {}
        deadline.go_on(self._begun)
        self._progress.epochs.give_up(partitions)
        log.info("revoked: %s", partition_names(partitions))
        read = self._lifecycle.reading
        self._perform(self._lifecycle.revoked(frozenset(partitions)))
        return self._progress.commits.due(self._progress.ends(read))

    def _on_lost(self) -> None:
        deadline.go_on(self._begun)
        self._progress.epochs.give_up(self._progress.epochs.known)
        self._perform(self._lifecycle.lost())


@dataclass(eq=False)
class Committer:
    _membership: Membership
    _progress: ReadProgress
    _stats: WorkerStats
    _describe: Callable[[KafkaError, str], str]

    def commit(self, positions: Mapping[TopicPartition, int], now: float) -> None:
        """Commits `positions` not yet committed. A later turn retries failures. Raises MemberLost, MemberFenced."""
        commits, epochs = self._progress.commits, self._progress.epochs
        waiting = commits.waiting(self._membership.partitions, now)
        positions = {tp: position for tp, position in positions.items() if tp not in waiting}
        ends = commits.due(positions)
        if not ends and commits.is_quiet:
            ends = epochs.uncommitted(positions)
        if not ends or self._membership.is_rebalancing:
            return
        try:
            refused = self._membership.commit(ends)
        except KafkaError as error:
            text = self._describe(error, f"offsets of {topics_of(ends)} are stored, not yet committed")
            self._stats.failing("commit", text, "brokers")
        else:
            commits.answered(ends, refused, now)
            epochs.committed(ends.keys() - refused.keys())
            if refused:
                self._stats.failing("commit", f"{refusal(refused)}; the other partitions are")
            elif not commits.refused:
                self._stats.works("commit")
