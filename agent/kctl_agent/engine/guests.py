"""The workers in the engine's JVM: each has a gateway and a session, freed when the kernel reports its end."""

# ruff: noqa: SLF001 - PySpark and Py4J have no public names for what is done here
from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kctl_agent.paths import ProcessIdentity, is_alive
from kctl_agent.replies.workers import EngineStats
from kctl_agent.spark.driver import check_application
from kctl_agent.spark.gateway import Gateway, OwnGateways

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Guest:
    name: str
    identity: ProcessIdentity
    descriptor: int
    """Readable when the process has ended (pidfd_open(2))."""
    session: Any
    server: Any
    callbacks: socket.socket
    """Reserves the port where the worker listens for the JVM. The JVM calls there even after the worker's end; another
    user who listened there could make it do anything."""


class Guests:
    """The workers that use the engine's JVM. For the main thread."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._guests: dict[str, _Guest] = {}
        self._leaving: list[tuple[threading.Thread, _Guest]] = []
        self._runtime = self._spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
        self._gateways = OwnGateways(self._spark.sparkContext._gateway)
        self._poll = select.poll()

    def admit(self, name: str, identity: ProcessIdentity) -> Gateway:
        """Closes an earlier gateway of this name. Raises OSError, OverflowError."""
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
        """The ports stay reserved until this process ends."""
        for guest in self._guests.values():
            self._poll.unregister(guest.descriptor)
            os.close(guest.descriptor)

    def _dismiss(self, guest: _Guest) -> None:
        self._poll.unregister(guest.descriptor)
        os.close(guest.descriptor)
        thread = threading.Thread(target=_free, args=(guest,), name=f"kctl-free {guest.name}", daemon=True)
        thread.start()
        self._leaving.append((thread, guest))


def held_port() -> socket.socket:
    """Binds a loopback port where only this user's processes may also listen (SO_REUSEPORT)."""
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
    except BaseException:
        held.close()
        raise
    return held


def _free(guest: _Guest) -> None:
    """Continues after a step that fails."""
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
    """Removes the session's event bus, which Spark never removes from its listeners."""
    streams = guest.session.streams()
    field = streams.getClass().getDeclaredField("listenerBus")
    field.setAccessible(True)
    guest.session.sparkContext().listenerBus().removeListener(field.get(streams))


def _tried(guest: _Guest, step: Callable[[], object]) -> None:
    try:
        step()
    except Exception as error:  # Py4J's or Java's: the engine continues for the others
        log.warning("freeing the resources of %s: %s", guest.name, " ".join(str(error).split())[:300])
