"""Requeues dead letters of a table in a thread, because the main thread must not wait for Spark.

A rebalance does not stop a requeue, so two workers may requeue the same dead letters. Only one of the two can commit.
"""

import logging
import threading
from collections.abc import Callable

from kctl_agent.storage.lake.dead_letters.requeue import PutBack, RequeueTaken
from kctl_agent.storage.lake.delta.log import LOG
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.worker.lifecycle.query_groups import RETRY_SECONDS
from kctl_agent.worker.query.batch_failure import failure
from kctl_agent.worker.stats import WorkerStats

log = logging.getLogger("kctl_agent.worker")

POLL_SECONDS = 1.0
REMOTE_POLL_SECONDS = 10.0
"""Interval for a log that is not a local folder: a check takes two HTTP requests."""
RECHECK_SECONDS = 60.0
"""After this time the tables are read even if no commit is seen: two commits may have the same time."""


class Requeuing:
    """Requeues batch by batch. The main thread calls its methods. `RequeuePut.put_next` runs in another thread."""

    def __init__(
        self, dead_letters: Folder, begin: Callable[[], Callable[[], PutBack | None] | None], stats: WorkerStats
    ) -> None:
        self._log = None if dead_letters.local is None else dead_letters.local / LOG
        self._begin = begin
        self._stats = stats
        self._failures = 0
        self._thread: threading.Thread | None = None
        self._outcome: PutBack | BaseException | None = None
        """Result or exception of `put_next`: written by the thread, read once it has ended."""
        self._seen: int | None = None
        self._began_on: int | None = None
        self._due_at = self._recheck_at = 0.0

    def turn(self, now: float) -> None:
        """Starts a requeue or reports its end, and never waits."""
        if self._thread is not None:
            if self._thread.is_alive():
                return
            self._thread = None
            self._ended(self._outcome, now)
        stamp = self._stamp(now)
        is_new = stamp != self._seen or now >= self._recheck_at
        if stamp is None or not is_new or now < self._due_at:
            return
        self._due_at, self._recheck_at = now + POLL_SECONDS, now + RECHECK_SECONDS
        put_next = self._begin()
        if put_next is not None:
            self._began_on = stamp
            self._thread = threading.Thread(target=self._put, args=[put_next], name="kctl-requeue", daemon=True)
            self._thread.start()

    def close(self, seconds: float) -> None:
        """Waits at most `seconds` for a running requeue. If the requeue takes longer, another worker repeats it."""
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                log.warning(
                    "another worker requeues the dead letters, because this one took longer than %.0f s", seconds
                )

    def _put(self, put_next: Callable[[], PutBack | None]) -> None:
        try:
            self._outcome = put_next()
        except BaseException as error:  # also `exit()` in the transform, or a panic of delta-rs
            log.debug("dead letters were not requeued", exc_info=True)
            self._outcome = error

    def _ended(self, outcome: PutBack | BaseException | None, now: float) -> None:
        if isinstance(outcome, RequeueTaken):  # another worker was faster
            return
        if isinstance(outcome, BaseException):
            seconds = RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS) - 1)]
            self._failures, self._due_at = self._failures + 1, now + seconds
            why = failure(outcome, "-")
            text = f"dead letters cannot be requeued: {why.text}; next try in {seconds:.0f} s"
            self._stats.failing("requeue", text, why.outside)
            return
        if outcome is None:  # all earlier requests are requeued
            self._seen = self._began_on
        else:
            self._stats.happened("requeued", str(outcome))
        self._failures = 0
        self._stats.works("requeue")

    def _stamp(self, now: float) -> int | None:
        if self._log is None:
            return int(now / REMOTE_POLL_SECONDS)
        try:
            return self._log.stat().st_mtime_ns
        except FileNotFoundError:
            return None
