"""A worker's process: `python -m kctl_agent.worker` (see `process.bootstrap`). At the end of stdin the master is gone:
the worker finishes its batch, commits, leaves the group and exits."""

from __future__ import annotations

import logging

from kafka.errors import KafkaError

from kctl_agent.errors import StorageError
from kctl_agent.kafka.errors import describe
from kctl_agent.process import parent_watch
from kctl_agent.process.bootstrap import EX_CONFIG, BootstrapError, begin, log_trace
from kctl_agent.process.outages import Stopped
from kctl_agent.process.tracebacks import first_line
from kctl_agent.rpc.commands import COMMANDS, AgentCommand, operation_commands, ping_of
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.spark.scratch import sweep
from kctl_agent.spark.session import why_lost
from kctl_agent.storage.base import OffsetStore, StorageMisconfigured, TableRefused
from kctl_agent.storage.kinds import KINDS, open_lake, open_storage
from kctl_agent.worker.consumer_group.membership import MemberFenced
from kctl_agent.worker.main_thread.requests import OPERATIONS
from kctl_agent.worker.settings import WorkerSettings, parse
from kctl_agent.worker.stats import WorkerStats
from kctl_agent.worker.worker import Worker

log = logging.getLogger("kctl_agent.worker")

STORAGE_REPLY_SECONDS = 5.0
"""The time-out of a storage's reply. The main thread asks little, and the group must not wait while a server hangs."""


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
    parent_watch.start(worker.stop)
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
    if why:
        log.error("%s", why)  # the last line of the log is what `kctl status` shows
    else:
        log.info("left")
    return code


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
