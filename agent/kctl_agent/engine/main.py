"""An engine's process, `python -m kctl_agent.engine`. Workers ask its agent for a gateway into the JVM."""

from __future__ import annotations

# ruff: noqa: SLF001 - PySpark and Py4J have no public names for what is done here
import logging
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from kctl_agent.paths import ProcessIdentity, is_alive
from kctl_agent.process.bootstrap import ProcessSettings, begin, decoded, fitting, left, log_trace
from kctl_agent.process.stats import ProcessStats
from kctl_agent.process.stop import watch_parent
from kctl_agent.process.tracebacks import first_line
from kctl_agent.replies.questions import asked_of
from kctl_agent.replies.workers import EngineStats
from kctl_agent.rpc import commands
from kctl_agent.rpc.operations import AcceptedOperation, Inbox, Outcome, outcome_of
from kctl_agent.rpc.params import param
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.spark.conf import SparkSettings
from kctl_agent.spark.driver import check_application
from kctl_agent.spark.gateway import Gateway, OwnGateways
from kctl_agent.spark.session import session, sweep, why_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(slots=True)
class _Guest:
    name: str
    identity: ProcessIdentity
    descriptor: int  # readable when the process has ended (pidfd_open(2))
    session: Any
    server: Any
    callbacks: socket.socket
    """Reserves the port where the worker listens for the JVM. The JVM calls there even after the worker's end; another
    user who listened there could make it do anything."""


class Guests:
    """The workers that use the engine's JVM. Main thread only."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._guests: dict[str, _Guest] = {}
        self._leaving: list[tuple[threading.Thread, _Guest]] = []
        self._runtime = self._spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
        self._gateways = OwnGateways(self._spark.sparkContext._gateway)
        self._poll = select.poll()

    def admit(self, name: str, identity: ProcessIdentity) -> Gateway:
        """Opens a gateway for a worker's process. Closes the worker's old gateway. Raises OSError or OverflowError."""
        with ExitStack() as undone:
            descriptor = os.pidfd_open(identity.pid)
            undone.callback(os.close, descriptor)
            if not is_alive(identity):
                raise ProcessLookupError(f"process {identity.pid} has ended")
            callbacks = undone.enter_context(held_port())
            session = self._spark._jsparkSession.newSession()
            server, port, token = self._gateways.open(session)
            guest = _Guest(name, identity, descriptor, session, server, callbacks)
            undone.pop_all()
        former = self._guests.pop(name, None)
        if former is not None:
            self._dismiss(former)
        self._guests[name] = guest
        self._poll.register(descriptor, select.POLLIN)
        log.info("%s, pid %d, has a gateway", name, identity.pid)
        return Gateway(port, token, os.getpid(), guest.callbacks.getsockname()[1])

    def wait(self, seconds: float) -> None:
        ended = {descriptor for descriptor, _ in self._poll.poll(seconds * 1000)}
        for guest in [guest for guest in self._guests.values() if guest.descriptor in ended]:
            del self._guests[guest.name]
            log.info("%s, pid %d, has ended", guest.name, guest.identity.pid)
            self._dismiss(guest)
        self._leaving = [each for each in self._leaving if each[0].is_alive()]

    def count(self) -> EngineStats:
        check_application(self._spark)
        sessions = [guest.session for guest in (*self._guests.values(), *(guest for _, guest in self._leaving))]
        return EngineStats(
            workers=len(self._guests),
            queries=sum(len(session.streams().active()) for session in sessions),
            heap_used_bytes=self._runtime.totalMemory() - self._runtime.freeMemory(),
            heap_max_bytes=self._runtime.maxMemory(),
        )

    def await_end(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self._guests and (left := deadline - time.monotonic()) > 0:
            self.wait(left)
        return not self._guests

    def close(self) -> None:
        """Stops watching the workers. The ports reserved for them stay reserved until this process ends."""
        for guest in self._guests.values():
            os.close(guest.descriptor)

    def _dismiss(self, guest: _Guest) -> None:
        self._poll.unregister(guest.descriptor)
        os.close(guest.descriptor)
        thread = threading.Thread(target=_free, args=(guest,), name=f"kctl-free {guest.name}", daemon=True)
        thread.start()
        self._leaving.append((thread, guest))


def held_port() -> socket.socket:
    """Reserves a loopback port, on which only processes of this user can listen (SO_REUSEPORT)."""
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
    except BaseException:
        held.close()
        raise
    return held


def _free(guest: _Guest) -> None:
    started = time.monotonic()
    queries: list[Any] = []
    _tried(guest, guest.server.shutdown)
    guest.callbacks.close()  # from now on the JVM does not connect to it
    _tried(guest, lambda: queries.extend(guest.session.streams().active()))
    for query in queries:
        _tried(guest, query.stop)
    _tried(guest, lambda: _remove_listener(guest))
    log.debug("freed %s: %d queries, %.1f s", guest.name, len(queries), time.monotonic() - started)


def _remove_listener(guest: _Guest) -> None:
    # Spark never removes a session's event bus from the listeners of its context.
    streams = guest.session.streams()
    field = streams.getClass().getDeclaredField("listenerBus")
    field.setAccessible(True)
    guest.session.sparkContext().listenerBus().removeListener(field.get(streams))


def _tried(guest: _Guest, step: Callable[[], object]) -> None:
    try:
        step()
    except Exception as error:  # Py4J's or Java's: the engine continues for the others
        log.warning("freeing the resources of %s: %s", guest.name, " ".join(str(error).split())[:300])


log = logging.getLogger("kctl_agent.engine")

TURN_SECONDS = 0.1
COUNT_SECONDS = 1.0
_END_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class EngineSettings(ProcessSettings):
    spark: SparkSettings
    orphan_seconds: float


def parse(line: str) -> EngineSettings:
    with fitting("engine"):
        given = decoded(line)
        spark = SparkSettings.of(given["spark"], given["name"], given["scratch_dir"])
        # An engine reads no partitions, so pauses do not apply.
        return EngineSettings(**{**given, "spark": spark, "paused": ()})


class EngineProcessStats(ProcessStats):
    def holds(self, engine: EngineStats) -> None:
        with self._lock:
            self._worker = replace(self._worker, engine=engine)

    def _snapshot(self) -> Snapshot:
        with self._lock:
            common = self._common("engine")
            # it reads nothing itself
            return replace(common, worker=replace(common.worker, rows_per_second=None))


@dataclass(frozen=True, slots=True)
class OpenGateway(commands.AgentOperation):
    """Opens a gateway into the JVM for one process. The outcome contains the gateway's port and token."""

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
        self._guests: Guests | None = None  # kept, because their ports must stay reserved while Spark stops
        self._count_at = 0.0

    def stop(self) -> None:
        """Requests a stop. Any thread or signal handler may call this."""
        self._is_stop_requested = True

    def run(self) -> None:
        """Serves workers until `stop`, on the main thread. If the JVM ends, raises an error of PySpark or Py4J."""
        self._spark = session(self._settings.spark)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # PySpark would have it cancel all jobs
        guests = self._guests = Guests(self._spark)
        self._stats.enter("running")
        try:
            while not self._is_stop_requested:
                self._turn(guests)
            self._stats.enter("stopping")
            # The kernel closes a killed master's end of stdin shortly before it reparents its children.
            if not guests.await_end(0.2) and os.getppid() != self._master:
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


def _commands(inbox: Inbox) -> dict[str, commands.AgentCommand]:
    of_inbox = commands.accepting(inbox, OpenGateway), commands.outcome_command(inbox), commands.ping_of(inbox)
    own = {each.name: each for each in (*of_inbox, commands.LOG_LEVEL, commands.STACK_DUMP)}
    return {name: commands.COMMANDS[name] for name in asked_of("engine")} | own


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
    return left(log, 1 if why else 0, why)
