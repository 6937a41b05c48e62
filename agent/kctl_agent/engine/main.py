"""An engine's process: `python -m kctl_agent.engine` (see `process.bootstrap`). The agent's socket is up before Java
starts; workers request a gateway over this socket."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from kctl_agent.engine.guests import Guests
from kctl_agent.paths import ProcessIdentity
from kctl_agent.process.bootstrap import ProcessSettings, begin, decoded, fitting, log_trace
from kctl_agent.process.stats import ProcessStats
from kctl_agent.process.stop import watch_parent
from kctl_agent.process.tracebacks import first_line
from kctl_agent.replies.questions import asked_of
from kctl_agent.replies.workers import EngineStats
from kctl_agent.rpc.commands import COMMANDS, AgentCommand, ping_of
from kctl_agent.rpc.commands.diagnosis import LOG_LEVEL, STACK_DUMP
from kctl_agent.rpc.commands.operations import AgentOperation, accepting, outcome_command
from kctl_agent.rpc.operations import AcceptedOperation, Inbox, Outcome, outcome_of
from kctl_agent.rpc.params import param
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.spark.conf import SparkSettings
from kctl_agent.spark.session import session, sweep, why_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("kctl_agent.engine")

TURN_SECONDS = 0.1
COUNT_SECONDS = 1.0
_REPARENTING_SECONDS = 0.2
_END_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class EngineSettings(ProcessSettings):
    """Pauses do not apply, because an engine reads nothing."""

    spark: SparkSettings
    orphan_seconds: float


def parse(line: str) -> EngineSettings:
    with fitting("engine"):
        given = decoded(line)
        spark = SparkSettings.of(given["spark"], given["name"], given["scratch_dir"])
        return EngineSettings(**{**given, "spark": spark, "paused": ()})


class EngineProcessStats(ProcessStats):
    """An engine's state. For any thread."""

    def holds(self, engine: EngineStats) -> None:
        with self._lock:
            self._worker = replace(self._worker, engine=engine)

    def _snapshot(self) -> Snapshot:
        with self._lock:
            common = self._common("engine")
            # it reads nothing itself
            return replace(common, worker=replace(common.worker, rows_per_second=None))


@dataclass(frozen=True, slots=True)
class OpenGateway(AgentOperation):
    """Opens a gateway into the JVM for one process; the outcome contains its port and token."""

    rpc: ClassVar = "gateway"
    name: str = param("the worker's name")
    pid: int = param("its process")
    start_ticks: int = param("when that was started, /proc/PID/stat field 22")


class Engine:
    def __init__(self, settings: EngineSettings, stats: EngineProcessStats, inbox: Inbox) -> None:
        self._settings = settings
        self._stats = stats
        self._inbox = inbox
        self._master = os.getppid()
        self._is_stop_requested = False
        self._spark: SparkSession | None = None
        self._count_at = 0.0

    def stop(self) -> None:
        """Safe in a signal handler and from any thread."""
        self._is_stop_requested = True

    def run(self) -> None:
        """Serves workers until `stop`, on the main thread. Raises errors of PySpark and Py4J if the JVM ends."""
        self._spark = session(self._settings.spark)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # PySpark would have it cancel all jobs
        guests = Guests(self._spark)
        self._stats.enter("running")
        try:
            while not self._is_stop_requested:
                self._turn(guests)
            self._stats.enter("stopping")
            # The kernel closes a killed master's end of stdin shortly before it reparents its children.
            if not guests.await_end(_REPARENTING_SECONDS) and os.getppid() != self._master:
                # The workers have lost their master too: they finish their batches, commit and leave.
                guests.await_end(self._settings.orphan_seconds)
        finally:
            guests.close()

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()

    def _turn(self, guests: Guests) -> None:
        guests.wait(TURN_SECONDS)
        steps = {"gateway": partial(self._admitted, guests)}
        for operation in self._inbox.take():
            self._inbox.report(operation.id, outcome_of(operation, steps))
        if (now := time.monotonic()) >= self._count_at:
            self._count_at = now + COUNT_SECONDS
            # Calls into the JVM: a hang shows in the age of this thread's turn, a dead JVM raises here.
            self._stats.holds(guests.count())

    def _admitted(self, guests: Guests, operation: AcceptedOperation) -> Outcome:
        wanted = OpenGateway(**operation.params)
        try:
            gateway = guests.admit(wanted.name, ProcessIdentity(wanted.pid, wanted.start_ticks))
        except (OSError, OverflowError) as error:
            return Outcome("failed", f"no gateway for {wanted.name}: {error}")
        return Outcome("done", "has a gateway", asdict(gateway))


def main() -> int:
    return begin("engine", parse, _commands, _serve)


def _commands(inbox: Inbox) -> dict[str, AgentCommand]:
    own = (accepting(inbox, OpenGateway), outcome_command(inbox), LOG_LEVEL, STACK_DUMP, ping_of(inbox))
    return {name: COMMANDS[name] for name in asked_of("engine")} | {command.name: command for command in own}


def _serve(settings: EngineSettings, server: AgentServer, inbox: Inbox) -> int:
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it logs the trace of each lost connection
    sweep(settings.scratch_dir)
    stats = EngineProcessStats(settings.name, server, inbox)
    stats.start()
    engine = Engine(settings, stats, inbox)

    def on_orphaned() -> None:
        engine.stop()
        # A hung JVM blocks the main thread; it exits when its stdin, which comes from this process, is closed.
        last_resort = threading.Timer(settings.orphan_seconds + _END_SECONDS, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()

    watch_parent(on_orphaned)
    why = ""
    try:
        engine.run()
    except Exception as error:  # the process boundary
        lost = why_lost(error, settings.spark, "engine.heap")
        why = f"failed: {lost or f'{type(error).__name__}: {first_line(error)}'}"
        stats.ended(why)
        log_trace(error)
    finally:
        try:
            engine.close()
        except Exception as error:  # a JVM that is gone
            log.debug("while stopping: %s: %s", type(error).__name__, first_line(error))
        stats.close()
    if why:
        log.error("%s", why)
        return 1
    log.info("left")
    return 0
