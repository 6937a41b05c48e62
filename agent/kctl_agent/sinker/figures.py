"""What a sinker says about itself: counted as it works, published to its agent as an immutable snapshot.

A thread of its own publishes every half second and after each change of state, so that the answers stay young while the
main thread is in the handler.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, replace

from kctl_agent.errors import StorageError
from kctl_agent.orders import Inbox
from kctl_agent.server import AgentServer
from kctl_agent.snapshot import Event, SinkerFigures, Snapshot, StorageFigures, WorkFigures
from kctl_agent.storage.base import Storage

__all__ = ["Call", "Figures"]

log = logging.getLogger(__name__)

PUBLISH_SECONDS = 0.5
COUNT_SECONDS = 1.0
KEPT_EVENTS = 50
KEPT_CALLS = 1000
RATE_WINDOW_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the handler that has ended, at `time.monotonic()`."""

    at: float
    seconds: float
    messages: int


class Figures:
    """Every method may be called from any thread."""

    def __init__(self, name: str, server: AgentServer, storage: Storage, inbox: Inbox) -> None:
        self._inbox = inbox
        self._name = name
        self._server = server
        self._storage = storage
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._started_at = self._state_since = time.monotonic()
        self._state = "starting"
        self._work = WorkFigures()
        self._sinker = SinkerFigures()
        self._calls: deque[Call] = deque(maxlen=KEPT_CALLS)
        self._settled: deque[tuple[float, int]] = deque()
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._stored: StorageFigures | None = None
        self._counted_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="kctl-figures", daemon=True)

    @property
    def state(self) -> str:
        return self._state

    def start(self) -> None:
        self.publish()
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        self.publish()

    def enter(self, state: str) -> None:
        """Change the state and publish it soon."""
        with self._lock:
            if state == self._state:
                return
            is_usual = {state, self._state} <= {"idle", "running"}
            log.log(logging.DEBUG if is_usual else logging.INFO, "%s -> %s", self._state, state)
            self._state, self._state_since = state, time.monotonic()
        self._wake.set()

    def failed(self, error: str | None) -> None:
        """The last error, in one line; None when it is overcome."""
        with self._lock:
            self._work = replace(self._work, last_error=error)
        self._wake.set()

    def happened(self, kind: str, text: str, topic: str, partition: int, first: int, last: int) -> None:
        """Log an event and keep it for the answers."""
        log.warning("%s: %s", kind, text)
        with self._lock:
            self._events.append(Event(time.time(), kind, text, topic, partition, first, last))
        self._wake.set()

    def in_flight(self, messages: int) -> None:
        """So many messages are claimed and not yet settled."""
        with self._lock:
            self._sinker = replace(self._sinker, in_flight=messages)

    def calling(self) -> None:
        with self._lock:
            self._work = replace(self._work, batch_started_at=time.monotonic())

    def called(self, call: Call, error: str | None) -> None:
        """A call has ended: well, or with an error."""
        with self._lock:
            self._calls.append(call)
            self._work = replace(
                self._work,
                batch_started_at=None,
                last_batch_seconds=call.seconds,
                last_batch_rows=call.messages,
                batches_total=self._work.batches_total + 1,
                last_error=error,
            )
            self._sinker = replace(self._sinker, handler_errors=self._sinker.handler_errors + (error is not None))

    def settled(self, *, handled: int = 0, again: int = 0, dead: int = 0, lost: int = 0) -> None:
        """So many messages were settled."""
        with self._lock:
            now, sinker = time.monotonic(), self._sinker
            self._settled.append((now, handled))
            while self._settled[0][0] < now - RATE_WINDOW_SECONDS:
                self._settled.popleft()
            self._work = replace(self._work, rows_total=self._work.rows_total + handled)
            self._sinker = replace(
                sinker,
                handled=sinker.handled + handled,
                retried=sinker.retried + again,
                dead=sinker.dead + dead,
                lost=sinker.lost + lost,
            )

    def publish(self) -> None:
        """Now, on the caller's thread."""
        self._count_storage()
        with self._lock:
            now = time.monotonic()
            span = min(RATE_WINDOW_SECONDS, now - self._started_at)
            recent = sum(rows for at, rows in self._settled if at >= now - RATE_WINDOW_SECONDS)
            seconds = sorted(call.seconds for call in self._calls)
            snapshot = Snapshot(
                name=self._name,
                kind="sinker",
                state=self._state,
                state_since=self._state_since,
                started_at=self._started_at,
                published_at=now,
                storage=self._stored,
                work=replace(self._work, rows_per_second=recent / span if span else None),
                rss_bytes=_rss_bytes(),
                events=tuple(self._events),
                paused=self._inbox.paused,
                sinker=replace(
                    self._sinker,
                    handler_p50_seconds=_percentile(seconds, 0.5),
                    handler_p99_seconds=_percentile(seconds, 0.99),
                ),
            )
        self._server.publish(snapshot)

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait(PUBLISH_SECONDS)
            self._wake.clear()
            self.publish()

    def _count_storage(self) -> None:
        if time.monotonic() - self._counted_at < COUNT_SECONDS:
            return
        self._counted_at = time.monotonic()
        identity = self._storage.identity
        try:
            stats = self._storage.stats()
        except StorageError:  # whoever claims or settles tells it
            self._stored = StorageFigures(identity)
        else:
            self._stored = StorageFigures(
                identity, stats.pending, stats.processing, stats.dead, stats.bytes, stats.limit
            )


def _percentile(ascending: list[float], share: float) -> float | None:
    """By the nearest rank; None of nothing."""
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)] if ascending else None


def _rss_bytes() -> int:
    """Resident memory of this process, proc_pid_statm(5) field 2."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
