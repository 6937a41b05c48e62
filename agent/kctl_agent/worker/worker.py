"""A running worker: opens what it needs, turns its main loop until it is stopped, closes everything in reverse."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from kctl_agent.kafka.errors import describe
from kctl_agent.process.outages import until_it_works
from kctl_agent.process.stop import StopRequest
from kctl_agent.process.tracebacks import first_line
from kctl_agent.rpc.operations import Inbox
from kctl_agent.storage.base import OffsetStore
from kctl_agent.worker.lifecycle.actions import WorkerState
from kctl_agent.worker.lifecycle.query_groups import Group
from kctl_agent.worker.main_thread.main_loop import MainLoop
from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.query.run import Batch
from kctl_agent.worker.settings import WorkerSettings
from kctl_agent.worker.stats import WorkerStats

log = logging.getLogger("kctl_agent.worker")

T = TypeVar("T")


class Worker:
    """A worker without Spark session, socket and exit code. `run` and `close` are for the main thread."""

    def __init__(self, settings: WorkerSettings, stats: WorkerStats, storage: OffsetStore, inbox: Inbox) -> None:
        self._settings = settings
        self._stats = stats
        self._storage = storage
        self._inbox = inbox
        self._stop = StopRequest()
        self._stored: deque[Group] = deque()
        self._pipeline = Pipeline(settings, storage, self._batch_done)
        self._endings: list[Callable[[], None]] = [self._pipeline.close]

    def stop(self) -> None:
        """Asks the worker to stop, from a signal handler or any thread."""
        self._stop.ask()

    def run(self) -> None:
        until_it_works(self._storage.prepare, self._stats, self._stop)
        self._pipeline.open()
        brokers = self._once_it_answers(lambda: Brokers(self._settings.kafka, self._settings.name))
        self._endings.append(brokers.close)
        loop = self._once_it_answers(lambda: self._main_loop(brokers))
        self._endings.append(loop.close)
        while not self._stop.is_asked:
            loop.turn()

    def close(self) -> None:
        self._stats.enter(WorkerState.STOPPING)
        for close in reversed(self._endings):
            try:
                close()
            except Exception as error:  # a dead broker or JVM must not prevent the other steps
                log.warning("while stopping: %s: %s", type(error).__name__, first_line(error))

    def _once_it_answers(self, open_: Callable[[], T]) -> T:
        servers = self._settings.kafka.bootstrap_servers
        return until_it_works(
            open_, self._stats, self._stop, lambda error: describe(error, "the group cannot be joined", servers)
        )

    def _main_loop(self, brokers: Brokers) -> MainLoop:
        return MainLoop(self._settings, self._pipeline, brokers, self._storage, self._stats, self._inbox, self._stored)

    def _batch_done(self, batch: Batch) -> None:
        """Records a stored batch, on Spark's callback thread."""
        self._stored.append(frozenset(batch.ends))
        self._stats.batch(batch)
