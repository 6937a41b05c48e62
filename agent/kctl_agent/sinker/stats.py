"""The snapshot that a sinker publishes about itself, counted as it works."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from dataclasses import replace

from kctl_agent.process.stats import StoringStats
from kctl_agent.replies.workers import Event, SinkerStats
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.storage.base import Storage

KEPT_CALLS = 1000
FAILING_TRIES = 10
"""More than a single message has by default."""


class SinkerProcessStats(StoringStats):
    """State, counters and calls of one sinker. Every method may be called from any thread."""

    usual_states = frozenset({"idle", "running"})

    def __init__(self, name: str, server: AgentServer, storage: Storage, inbox: Inbox) -> None:
        super().__init__(name, server, storage, inbox)
        self._settled = Counter[str]()
        self._in_flight = self._handler_errors = 0
        self._failed, self._failing_since = 0, math.inf
        """Tries that have failed since a message was handled, and when the first of them did."""
        self._calls: deque[float] = deque(maxlen=KEPT_CALLS)

    def happened(self, kind: str, text: str, topic: str, partition: int, first: int, last: int) -> None:
        """Logs an event and keeps it for the replies."""
        self._record(Event(time.time(), kind, text, topic, partition, first, last))

    def in_flight(self, messages: int) -> None:
        """Records how many messages are claimed and not yet settled."""
        self._in_flight = messages

    def calling(self) -> None:
        self._batch_started_at = time.monotonic()

    def called(self, seconds: float, messages: int, error: str | None) -> None:
        """Counts a call of the handler that has ended: well, or with an error."""
        with self._lock:
            self._calls.append(seconds)
            self._batch_started_at = None
            self._batches_total += 1
            self._handler_errors += error is not None
            self._worker = replace(self._worker, last_batch_seconds=seconds, last_batch_rows=messages)
            if error is None:
                self._troubles.over("handler")
            else:
                self._troubles.met("handler", error, time.monotonic(), time.time())

    def settled(self, *, handled: int = 0, again: int = 0, dead: int = 0, lost: int = 0) -> None:
        """Counts settled messages."""
        with self._lock:
            self._recent.append((time.monotonic(), handled))
            self._rows_total += handled
            self._settled.update(handled=handled, retried=again, dead=dead, lost=lost)
            if handled:
                self._failed, self._failing_since = 0, math.inf
            elif again or dead:
                self._failed += again + dead
                self._failing_since = min(self._failing_since, time.monotonic())

    def _snapshot(self) -> Snapshot:
        with self._lock:
            seconds = sorted(self._calls)
            sinker = SinkerStats(
                **{outcome: self._settled[outcome] for outcome in ("handled", "retried", "dead", "lost")},
                in_flight=self._in_flight,
                handler_errors=self._handler_errors,
                failing_seconds=None if self._failed < FAILING_TRIES else time.monotonic() - self._failing_since,
                handler_p50_seconds=_percentile(seconds, 0.5),
                handler_p99_seconds=_percentile(seconds, 0.99),
            )
            common = self._common("sinker")
            return replace(common, worker=replace(common.worker, sinker=sinker))


def _percentile(ascending: list[float], share: float) -> float | None:
    """Returns a percentile by the nearest rank; None of nothing."""
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)] if ascending else None
