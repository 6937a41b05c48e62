"""A worker's process: `python -m kctl_agent.worker` (see `process.bootstrap`). If the master ends, the worker finishes
its batch, commits, leaves the group and exits."""

import logging
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from kafka.errors import KafkaError

from kctl_agent.errors import StorageError
from kctl_agent.kafka.errors import describe
from kctl_agent.process.bootstrap import EX_CONFIG, BootstrapError, begin, left, log_trace
from kctl_agent.process.outages import Stopped, until_it_works
from kctl_agent.process.stop import StopRequest, watch_parent
from kctl_agent.process.tracebacks import first_line
from kctl_agent.rpc.commands import COMMANDS, AgentCommand, operation_commands, ping_of
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.spark.session import sweep, why_lost
from kctl_agent.storage.base import OffsetStore, StorageMisconfigured, TableRefused
from kctl_agent.storage.kinds import KINDS, open_lake, open_storage
from kctl_agent.worker.consumer_group.membership import MemberFenced
from kctl_agent.worker.lifecycle.machine import WorkerState
from kctl_agent.worker.lifecycle.query_groups import Group
from kctl_agent.worker.main_thread.main_loop import MainLoop
from kctl_agent.worker.main_thread.requests import OPERATIONS
from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.query.run import Batch
from kctl_agent.worker.settings import WorkerSettings, parse
from kctl_agent.worker.stats import WorkerStats

log = logging.getLogger("kctl_agent.worker")

STORAGE_REPLY_SECONDS = 5.0
"""The time-out of a storage's reply. The main thread asks little, and the group must not wait while a server hangs."""

T = TypeVar("T")


class Worker:
    """Runs a worker's main loop and closes its parts, both on the main thread."""

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
        parts = self._settings, self._pipeline, brokers, self._storage, self._stats, self._inbox, self._stored
        loop = self._once_it_answers(lambda: MainLoop(*parts))
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

    def _batch_done(self, batch: Batch) -> None:  # on Spark's callback thread
        self._stored.append(frozenset(batch.ends))
        self._stats.batch(batch)


def main() -> int:
    return begin("worker", parse, _commands, _serve)


def _commands(inbox: Inbox) -> dict[str, AgentCommand]:
    return {**COMMANDS, "ping": ping_of(inbox), **operation_commands(inbox, *OPERATIONS)}


def _serve(settings: WorkerSettings, server: AgentServer, inbox: Inbox) -> int:
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it logs each refused connection; an outage is logged once
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs the trace of each failed batch
    sweep(settings.scratch_dir)
    storage = _storage(settings)
    stats = WorkerStats(settings.name, server, storage, inbox)
    stats.start()
    worker = Worker(settings, stats, storage, inbox)
    watch_parent(worker.stop)
    code, why = 0, ""
    try:
        worker.run()
    except Stopped:
        pass
    except (BootstrapError, StorageMisconfigured, TableRefused) as error:
        code, why = EX_CONFIG, f"cannot start: {error}"
        stats.ended(str(error))
        log_trace(error)
    except MemberFenced as error:
        code, why = EX_CONFIG, f"fenced: {error}"
        stats.ended(str(error))
    except Exception as error:  # the boundary of the process: its last line is why, in one sentence
        lost = why_lost(error, settings.spark, "spark.driver_memory")
        text = lost or _text(error, settings.kafka.bootstrap_servers)
        code, why = 1, f"failed: {text}"
        stats.ended(text)
        log.error("%s; leaving", why)
        log_trace(error, KafkaError)
    finally:
        worker.close()
        stats.close()
    return left(log, code, why)


def _text(error: Exception, servers: str) -> str:
    if isinstance(error, KafkaError):
        return describe(error, "Kafka cannot be used", servers)
    return f"{type(error).__name__}: {first_line(error)}"


def _storage(settings: WorkerSettings) -> OffsetStore:
    kind = KINDS[settings.storage["mode"]]
    if kind.is_table:
        try:
            return open_lake(settings.storage)
        except StorageError as error:
            raise BootstrapError(str(error)) from error
    if not kind.is_handled_inside:
        return open_storage(settings.storage, reply_seconds=STORAGE_REPLY_SECONDS)
    from kctl_agent.sinker.inline_handler import HandlingStorage

    storage = HandlingStorage(settings.storage)
    storage.handler_settings.load()
    return storage
