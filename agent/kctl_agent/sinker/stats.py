"""The snapshot that a sinker publishes about itself."""

import math
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

from kctl_agent.process.stats import StoringStats
from kctl_agent.replies.workers import SinkerStats
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.storage.base import Storage
from kctl_agent.storage.causes import cause_of, public_class
from kctl_agent.storage.limits import StorageStats

RECENT_SECONDS = 60.0
FAILING_TRIES = 10


class SinkerProcessStats(StoringStats):
    usual_states = frozenset({"idle", "running"})

    def __init__(self, name: str, server: AgentServer, storage: Storage, inbox: Inbox) -> None:
        super().__init__(name, server, storage, inbox)
        self._settled = Counter[str]()
        self.in_flight = self._handler_errors = 0
        self._failed, self._failing_since = 0, math.inf
        self._calls: deque[float] = deque(maxlen=1000)
        self._tries: deque[tuple[float, int, int]] = deque()
        self.handler: str | None = None
        self._error_class: str | None = None

    def calling(self) -> None:
        self._batch_started_at = time.monotonic()

    def called(self, seconds: float, messages: int, failures: Sequence[str], error: str | None) -> None:
        with self._lock:
            at, tries, failed = self._tries.pop() if self._tries else (-math.inf, 0, 0)
            if time.monotonic() - at >= 1.0:
                self._tries += [(at, tries, failed)] if tries else []
                at, tries, failed = time.monotonic(), 0, 0
            self._tries.append((at, tries + messages, failed + len(failures)))
            if failures:
                self._error_class = public_class(cause_of(failures[-1]).error_class)
            self._calls.append(seconds)
            self._batch_started_at = None
            self._batches_total += 1
            self._handler_errors += error is not None
            self._worker = replace(self._worker, last_batch_seconds=seconds, last_batch_rows=messages)
            if error is None:
                self._troubles.over("handler")
            else:
                self._troubles.met("handler", error, time.monotonic(), time.time())

    def worked(self, seconds: float) -> None:
        with self._lock:
            self._batch_seconds_total += seconds

    def settled(self, *, handled: int = 0, again: int = 0, dead: int = 0, lost: int = 0) -> None:
        with self._lock:
            self._recent.append((time.monotonic(), handled))
            self._rows_total += handled
            self._settled.update(handled=handled, retried=again, dead=dead, lost=lost)
            if handled:
                self._failed, self._failing_since = 0, math.inf
            elif again or dead:
                self._failed += again + dead
                self._failing_since = min(self._failing_since, time.monotonic())

    def _beside_counting(self) -> None:
        super()._beside_counting()
        stats = self._storage_stats
        if isinstance(stats, StorageStats) and not stats.unfinished:
            self.works("handler")  # its error is over: no failed message is left

    def _snapshot(self) -> Snapshot:
        now = time.monotonic()
        with self._lock:
            seconds = sorted(self._calls)
            while self._tries and self._tries[0][0] < now - RECENT_SECONDS:
                self._tries.popleft()
            failures = sum(failed for _, _, failed in self._tries)
            is_failing = failures and self._failed >= FAILING_TRIES
            called_at = self._batch_started_at
            sinker = SinkerStats(
                **{outcome: self._settled[outcome] for outcome in ("handled", "retried", "dead", "lost")},
                in_flight=self.in_flight,
                handler_errors=self._handler_errors,
                failing_seconds=now - self._failing_since if is_failing else None,
                handler=self.handler,
                call_seconds=None if called_at is None else now - called_at,
                recent_tries=sum(tries for _, tries, _ in self._tries),
                recent_failures=failures,
                error_class=self._error_class if failures else None,
                handler_p50_seconds=_percentile(seconds, 0.5),
                handler_p99_seconds=_percentile(seconds, 0.99),
            )
            common = self._common("sinker")
            return replace(common, worker=replace(common.worker, sinker=sinker))


def _percentile(ascending: list[float], share: float) -> float | None:
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)] if ascending else None
