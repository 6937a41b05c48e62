"""A running engine: starts the JVM, gives workers their gateways, and checks that the JVM is alive."""

from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from kctl_agent.engine.guests import Guests
from kctl_agent.engine.settings import EngineSettings
from kctl_agent.engine.stats import EngineProcessStats
from kctl_agent.paths import ProcessIdentity
from kctl_agent.rpc.commands.operations import AgentOperation
from kctl_agent.rpc.operations import AcceptedOperation, Inbox, Outcome, outcome_of
from kctl_agent.rpc.params import param
from kctl_agent.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("kctl_agent.engine")

TURN_SECONDS = 0.1
COUNT_SECONDS = 1.0
_REPARENTING_SECONDS = 0.2


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
        """Serves workers until `stop`. For the main thread. Raises the errors of PySpark and Py4J if the JVM does not
        start or has ended."""
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
