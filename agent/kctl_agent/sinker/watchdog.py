"""The watchdog of a sinker, which renews leases and ends the process if a handler call hangs."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kctl_agent.errors import StorageError
from kctl_agent.sinker.in_flight import InFlightClaim, Part
from kctl_agent.storage.base import Storage

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Watchdog:
    """Renews leases and limits the time of handler calls. If a lease is lost, the watchdog's thread or `renew_due`
    passes the claim to `lost`. If a call takes too long, the thread passes it to `timed_out` to end the process."""

    _storage: Storage
    _lease_seconds: float
    _timeout_seconds: float
    _lost: Callable[[InFlightClaim], None]
    _timed_out: Callable[[Sequence[Part]], None]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: set[InFlightClaim] = set()
        self._call: Sequence[Part] = ()
        self._deadline = float("inf")
        self._is_over = False
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kctl-guard", daemon=True)

    @property
    def renew_seconds(self) -> float:
        return self._lease_seconds / 3

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def hold(self, claimed: InFlightClaim) -> None:
        with self._lock:
            self._in_flight.add(claimed)

    def drop(self, claimed: InFlightClaim) -> None:
        """Stops renewing a claim. Call it before settling: a renewal of a settled claim would report a lost lease."""
        with self._lock:
            self._in_flight.discard(claimed)

    def renew_due(self) -> None:
        """Renews due leases. Call it before each handler call, to notice leases lost while the process was frozen."""
        with self._lock:
            now = time.monotonic()
            for claimed in [each for each in self._in_flight if each.renew_at <= now]:
                self._renew(claimed, now)

    @contextmanager
    def calling(self, call: Sequence[Part]) -> Iterator[None]:
        """Limits the time of a handler call. After a time-out, blocks until the process ends."""
        with self._lock:
            self._call, self._deadline = call, time.monotonic() + self._timeout_seconds
        try:
            yield
        finally:
            with self._lock:
                self._deadline = float("inf")
                is_over = self._is_over
            if is_over:
                self._closed.wait()

    def _run(self) -> None:
        tick = min(max(min(self.renew_seconds, self._timeout_seconds) / 10, 0.01), 0.5)
        while not self._closed.wait(tick):
            with self._lock:
                self._is_over = time.monotonic() >= self._deadline
            if self._is_over:
                self._timed_out(self._call)
                return
            self.renew_due()

    def _renew(self, claimed: InFlightClaim, now: float) -> None:
        claimed.renew_at = now + self.renew_seconds
        try:
            is_ours = self._storage.renew(claimed.claim, self._lease_seconds)
        except StorageError as error:
            log.warning("a lease could not be renewed: %s", error)
            claimed.renew_at = now + self.renew_seconds / 5
            return
        if not is_ours:
            claimed.is_lost = True
            self._in_flight.discard(claimed)
            self._lost(claimed)
