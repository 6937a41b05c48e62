"""What a worker says about itself: gathered from its parts and published to the agent as an immutable snapshot.

A thread of its own publishes every half second and after each change, so that the answers stay young while the main
thread waits for a broker, a rebalance or Spark.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kafka import TopicPartition

from kctl_agent.orders import Inbox, is_paused
from kctl_agent.server import AgentServer
from kctl_agent.snapshot import Event, MemberFigures, PartitionFigures, Snapshot, StorageFigures, WorkFigures
from kctl_agent.storage.base import Storage, StorageError
from kctl_agent.worker.brokers import BrokerView
from kctl_agent.worker.pipeline import Batch

__all__ = ["Figures", "Sources"]

log = logging.getLogger(__name__)

PUBLISH_SECONDS = 0.5
KEPT_EVENTS = 50
RATE_WINDOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the figures come from; each is asked on the publishing thread and must answer without waiting."""

    member: Callable[[], MemberFigures | None]
    brokers: Callable[[], BrokerView]
    positions: Callable[[], Mapping[TopicPartition, int | None]]
    committed: Callable[[], Mapping[TopicPartition, int]]
    query_id: Callable[[], str | None]
    batch_started_at: Callable[[], float | None]


class Figures:
    """State, work and events of one worker. Every method may be called from any thread."""

    def __init__(self, name: str, server: AgentServer, storage: Storage, inbox: Inbox) -> None:
        self._name = name
        self._server = server
        self._inbox = inbox
        self._storage = storage
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._started_at = self._state_since = time.monotonic()
        self._state = "starting"
        self._work = WorkFigures()
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._recent: deque[tuple[float, int]] = deque()
        self._timestamps: dict[TopicPartition, float] = {}
        self._sources: Sources | None = None
        self._stored: StorageFigures | None = None
        self._storage_failed = False
        self._thread = threading.Thread(target=self._run, name="kctl-figures", daemon=True)

    @property
    def state(self) -> str:
        return self._state

    @property
    def held(self) -> int | None:
        """Messages that the storage still holds for the handler, as last counted; None before the first count."""
        stored = self._stored
        if stored is None or stored.pending is None or stored.processing is None:
            return None
        return stored.pending + stored.processing

    def start(self) -> None:
        self._publish()
        self._thread.start()

    def draw_from(self, sources: Sources) -> None:
        self._sources = sources

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def enter(self, state: str) -> None:
        """Change the state and publish it at once."""
        with self._lock:
            if state == self._state:
                return
            log.info("%s -> %s", self._state, state)
            self._state, self._state_since = state, time.monotonic()
        self._wake.set()

    def failed(self, error: str | None) -> None:
        """The last error, in one line; None when it is overcome."""
        with self._lock:
            self._work = replace(self._work, last_error=error)
        self._wake.set()

    def query_failed(self, why: str, *, is_first: bool) -> None:
        """A query has ended by itself. The first of several in a row is an event too; more would bury all else."""
        with self._lock:
            self._work = replace(self._work, queries_failed=self._work.queries_failed + 1)
        if is_first:
            self.happened("query_failed", why)

    def happened(
        self, kind: str, text: str, tp: TopicPartition | None = None, offsets: tuple[int, int] | None = None
    ) -> None:
        """Log an event and keep it for the answers."""
        log.warning("%s: %s", kind, text)
        topic, partition = tp or (None, None)
        begin, end = offsets or (None, None)
        with self._lock:
            self._events.append(Event(time.time(), kind, text, topic, partition, begin, end))
        self._wake.set()

    def batch(self, batch: Batch) -> None:
        now = time.monotonic()
        with self._lock:
            self._recent.append((now, batch.rows))
            self._timestamps = {**self._timestamps, **batch.last_timestamps}
            self._work = replace(
                self._work,
                batch_id=batch.batch_id,
                last_batch_seconds=batch.seconds,
                last_batch_rows=batch.rows,
                rows_total=self._work.rows_total + batch.rows,
                batches_total=self._work.batches_total + 1,
                last_error=None,
            )
        self._wake.set()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(PUBLISH_SECONDS)
            self._wake.clear()
            self._publish()

    def _publish(self) -> None:
        sources = self._sources
        stored = self._stored = self._count_storage()
        with self._lock:
            now = time.monotonic()
            while self._recent and self._recent[0][0] < now - RATE_WINDOW_SECONDS:
                self._recent.popleft()
            span = min(RATE_WINDOW_SECONDS, now - self._started_at)
            work = replace(self._work, rows_per_second=sum(rows for _, rows in self._recent) / span if span else None)
            if sources:
                work = replace(work, query_id=sources.query_id(), batch_started_at=sources.batch_started_at())
            view = sources.brokers() if sources else BrokerView()
            snapshot = Snapshot(
                name=self._name,
                kind="worker",
                state=self._state,
                state_since=self._state_since,
                started_at=self._started_at,
                published_at=now,
                member=sources.member() if sources else None,
                partitions=self._partitions(sources, view) if sources else (),
                brokers=view.brokers,
                topics=view.topics,
                storage=stored,
                work=work,
                rss_bytes=_rss_bytes(),
                events=tuple(self._events),
                paused=self._inbox.paused,
            )
        self._server.publish(snapshot)

    def _partitions(self, sources: Sources, view: BrokerView) -> tuple[PartitionFigures, ...]:
        committed, paused = sources.committed(), self._inbox.paused
        return tuple(
            PartitionFigures(
                tp.topic,
                tp.partition,
                view.starts.get(tp),
                committed.get(tp),
                position,
                view.ends.get(tp),
                self._timestamps.get(tp),
                view.taken_at,
                is_paused(paused, tp.topic, tp.partition),
            )
            for tp, position in sorted(sources.positions().items())
        )

    def _count_storage(self) -> StorageFigures | None:
        try:
            stats = self._storage.stats()
        except StorageError as error:
            if not self._storage_failed and self._sources:
                log.warning("the storage cannot be counted: %s", error)
            self._storage_failed = True
            return StorageFigures(self._storage.identity)
        self._storage_failed = False
        return StorageFigures(
            self._storage.identity,
            stats.pending + stats.delayed,
            stats.processing,
            stats.dead,
            stats.bytes,
            stats.limit,
        )


def _rss_bytes() -> int:
    """Resident memory of this Python process (the JVM is the supervisor's to add), proc_pid_statm(5) field 2."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
