"""The snapshot of a process, published every half second and after each change, even while the main thread is busy."""

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import replace
from typing import Any

from kctl_agent.errors import StorageError
from kctl_agent.process.troubles import GRACE_SECONDS, Troubles
from kctl_agent.replies.block_size import RecentDeadLetters, StorageReply, TableReply
from kctl_agent.replies.encode import aged
from kctl_agent.replies.workers import CommitStats, Event, Outside, WorkerReply
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.storage.base import OffsetStore
from kctl_agent.storage.limits import StorageStats, TableStats, why_full

_PUBLISH_SECONDS = 0.5
_EXPIRE_SECONDS = 60.0
_READ_DEAD_SECONDS = 5.0
_REREAD_DEAD_SECONDS = 30.0
_MISSED_DEAD_SECONDS = 60.0
_RATE_WINDOW_SECONDS = 10.0


class ProcessStats(ABC):
    """State, troubles and events of a process. Thread-safe."""

    usual_states: frozenset[str] = frozenset()
    """Changes between these states are logged at DEBUG only."""

    def __init__(self, name: str, server: AgentServer, inbox: Inbox) -> None:
        self._log = logging.getLogger(type(self).__module__)
        self._name = name
        self._server = server
        self._inbox = inbox
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._started_at = self._state_since = time.monotonic()
        self.state = "starting"
        self._worker = WorkerReply.starting(name)
        self._rows_total = self._batches_total = self._queries_failed = self._progress = 0
        self._batch_seconds_total = 0.0
        self._batch_started_at: float | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self._events: deque[Event] = deque(maxlen=50)
        self._thread = threading.Thread(target=self._run, name="kctl-stats", daemon=True)
        self._last = Snapshot(self._started_at, self._worker)
        self._troubles = Troubles()

    def start(self) -> None:
        self._publish()
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self._publish()

    def enter(self, state: str) -> None:
        with self._lock:
            if state == self.state:
                return
            level = logging.DEBUG if {state, self.state} <= self.usual_states else logging.INFO
            self._log.log(level, "%s -> %s", self.state, state)
            self.state, self._state_since = state, time.monotonic()
        self._wake.set()

    def failing(
        self, part: str, why: str, outside: Outside | None = None, *, is_grave: bool = False, trace: Any = None
    ) -> None:
        """Records that a part, such as `commit`, fails. Snapshots report `why` after `GRACE_SECONDS`, or at once if
        `is_grave`, until `works` is called for this part."""
        grace_seconds = 0.0 if is_grave else GRACE_SECONDS
        with self._lock:
            is_due = self._troubles.met(part, why, time.monotonic(), time.time(), outside, grace_seconds)
        if is_due:
            self._log.error("%s", why, exc_info=trace)
            self._wake.set()

    def ended(self, why: str) -> None:
        with self._lock:
            self._troubles = Troubles()
            self._troubles.met("process", why[:500], time.monotonic(), time.time())
        self.enter("failed")

    def works(self, part: str) -> None:
        with self._lock:
            was_in_trouble = self._troubles.over(part)
        if was_in_trouble:
            self._wake.set()

    def outside(self, besides: str) -> Outside | None:
        with self._lock:
            return self._troubles.outside(besides)

    @abstractmethod
    def _snapshot(self) -> Snapshot: ...

    def _common(self, kind: str) -> Snapshot:
        now = time.monotonic()
        while self._recent and self._recent[0][0] < now - _RATE_WINDOW_SECONDS:
            self._recent.popleft()
        span = min(_RATE_WINDOW_SECONDS, now - self._started_at)
        rows_per_second = sum(rows for _, rows in self._recent) / span if span else None
        worker = replace(
            self._worker,
            kind=kind,
            state=self.state,
            state_seconds=now - self._state_since,
            uptime_seconds=now - self._started_at,
            rss_bytes=_resident_bytes(),
            batch_running_seconds=None if self._batch_started_at is None else now - self._batch_started_at,
            rows_per_second=rows_per_second,
            rows_total=self._rows_total,
            batches_total=self._batches_total,
            batch_seconds_total=self._batch_seconds_total,
            queries_failed=self._queries_failed,
            last_error=self._troubles.error(now),
            events=tuple(self._events),
            paused=self._inbox.paused,
            waiting_for=self._troubles.waiting_for(),
        )
        return Snapshot(now, worker, self._progress)

    def happened(
        self, kind: str, text: str, tp: tuple[str, int] | None = None, offsets: tuple[int, int] | None = None
    ) -> None:
        self._log.warning("%s: %s", kind, text)
        event = Event(time.time(), kind, text, *(tp or (None, None)), *(offsets or (None, None)))
        with self._lock:
            self._events.append(event)
        self._wake.set()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(_PUBLISH_SECONDS)
            self._wake.clear()
            self._publish()

    def _publish(self) -> None:
        try:
            self._last = self._snapshot()
        except Exception as error:  # if a bug ended this thread, the last snapshot would seem current
            text = f"its stats cannot be collected: {type(error).__name__}: {error}"
            if self._last.worker.last_error != text:
                self._log.error("%s", text, exc_info=error)
            self._last = replace(self._last, worker=replace(self._last.worker, last_error=text))
        self._server.publish(self._last)


class StoringStats(ProcessStats):
    """Adds the storage's counts. A separate thread reads them. If the storage hangs, snapshots show old counts."""

    def __init__(self, name: str, server: AgentServer, storage: OffsetStore, inbox: Inbox) -> None:
        super().__init__(name, server, inbox)
        self._storage = storage
        self._storage_stats: StorageStats | TableStats | None = None
        self._stored: StorageReply | None = None
        self._counted_at: float | None = None
        self._count_now = threading.Event()
        self._expire_at = time.monotonic()
        self._recent_dead: RecentDeadLetters | None = None
        self._recent_dead_at = 0.0
        self._dead_known, self._read_dead_at = 0, 0.0
        self._exchanges = 0
        self._counting = threading.Thread(target=self._count_on, name="kctl-storage", daemon=True)

    def start(self) -> None:
        super().start()
        self._counting.start()

    def enter(self, state: str) -> None:
        before = self.state
        super().enter(state)
        if state != before and not {state, before} <= self.usual_states:
            self._count_now.set()

    def close(self) -> None:
        self._closed = True
        self._count_now.set()
        if self._counting.is_alive():
            self._counting.join(2.0)  # a storage that hangs is not waited for
        super().close()

    def _common(self, kind: str) -> Snapshot:
        common, stored, stats = super()._common(kind), self._stored, self._storage_stats
        if isinstance(stats, TableStats):
            commits = CommitStats(stats.commits_failed, stats.commits_retried)
            common = replace(common, worker=replace(common.worker, commits=commits))
        if stored is not None and self._counted_at is not None:
            stored = aged(replace(stored, age_seconds=0.0), common.published_at - self._counted_at)
        return replace(common, replies=(*common.replies, stored))

    def _count_on(self) -> None:
        while True:
            is_last = self._closed
            self._count()
            if is_last:
                return
            self._count_now.wait(1.0)
            self._count_now.clear()

    def _count(self) -> None:
        try:
            self._storage_stats = self._storage.stats()
            stored = counted(self._storage.identity, self._storage_stats)
            now = time.monotonic()
            recent_dead = self._recent_dead and aged(self._recent_dead, now - self._recent_dead_at)
            self._stored, self._counted_at = replace(stored, recent_dead=recent_dead), now
            self.works("count")
            self._read_recent_dead(stored.dead)
            self._beside_counting()
        except Exception as error:
            if self.state == "starting":
                return  # it may not exist yet
            is_known = isinstance(error, StorageError)
            why = str(error) if is_known else f"{type(error).__name__}: {error}"
            outside: Outside | None = "storage" if isinstance(error, StorageError) and error.retriable else None
            self.failing("count", f"the storage cannot be counted: {why}", outside)
            self._storage_stats = None
            self._stored = StorageReply(self._storage.identity, error=why)

    def _read_recent_dead(self, dead: int | None) -> None:
        # This costs a query. The letters that were recent at the last one may be older by now.
        now = time.monotonic()
        is_known = self._recent_dead is None or now < self._recent_dead_at + _REREAD_DEAD_SECONDS
        if dead is None or (dead == self._dead_known and is_known) or now < self._read_dead_at:
            return
        store = self._storage.dead_letter_store()
        if store is None:
            return
        self._read_dead_at = now + _READ_DEAD_SECONDS
        try:
            self._recent_dead = store.recent_dead() if dead else None
            self._dead_known, self._recent_dead_at = dead, time.monotonic()
        except StorageError as error:  # counting reports an unreadable storage
            self._read_dead_at = time.monotonic() + _MISSED_DEAD_SECONDS
            self._log.debug("recent dead letters were not read: %s", error)

    def _beside_counting(self) -> None:
        if time.monotonic() >= self._expire_at:
            self._expire_at = time.monotonic() + _EXPIRE_SECONDS
            self._expire_dead()
        if self._storage.exchanges > self._exchanges:
            self._exchanges = self._storage.exchanges
            text = f"{self._storage.identity} was replaced by another file; claims of the old file are dropped"
            self.happened("storage_exchanged", text)

    def _expire_dead(self) -> None:
        try:
            count = self._storage.expire_dead()
        except StorageError as error:  # counting reports it
            self._log.debug("dead letters were not expired: %s", error)
            return
        except Exception as error:
            self.failing(
                "expiry", f"dead letters were not expired: {type(error).__name__}: {error}", is_grave=True, trace=error
            )
            return
        self.works("expiry")
        if count:
            age = self._storage.limits.dead_seconds
            text = f"{count} dead letters were older than {age:g} s (storage.dead_expire_seconds) and were removed"
            self.happened("dead_letters_expired", text)


def counted(identity: str, stats: StorageStats | TableStats) -> StorageReply:
    common = StorageReply(
        identity,
        dead=stats.dead,
        dead_limit=stats.limits.dead,
        free_bytes=None if stats.free is None else stats.free.bytes,
        full=why_full(stats),
        age_seconds=0.0,
    )
    if isinstance(stats, TableStats):
        if (counts := stats.counts) is None:
            return replace(common, table=TableReply())
        age = None if counts.committed_at is None else max(time.time() - counts.committed_at, 0.0)
        table = TableReply(counts.version, counts.rows, counts.files, counts.small_files, age)
        return replace(common, bytes=counts.bytes, table=table)
    return replace(
        common,
        pending=stats.pending + stats.delayed,
        delayed=stats.delayed,
        processing=stats.processing,
        oldest_seconds=stats.oldest_seconds,
        bytes=stats.bytes,
        limit=stats.limits.messages,
        limit_bytes=stats.limits.bytes,
    )


def _resident_bytes() -> int:
    # proc_pid_statm(5) field 2. The supervisor adds the memory of a JVM.
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
