"""The Spark driver of a worker: one of its own, or that of the engine, which it shares with others.

PySpark keeps one context for each process, so there is one `Driver` at a time. All methods are the main thread's.
"""

# ruff: noqa: SLF001 - PySpark and Py4J have no public names for what is done here
from __future__ import annotations

import logging
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl_agent.errors import AgentError
from kctl_agent.process import deadline
from kctl_agent.spark.callbacks import authenticate
from kctl_agent.spark.conf import use_this_python
from kctl_agent.spark.gateway import Gateway, GatewayRequest
from kctl_agent.spark.session import session
from kctl_agent.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class DriverLost(AgentError):
    """The driver ended, or this process was cut off from it. Its queries are gone; another one can take them up."""

    code = "driver_lost"


class Driver(ABC):
    """A driver in which queries run. `session` is None while there is none to be used."""

    session: SparkSession | None = None

    @abstractmethod
    def open(self) -> None:
        """Starts what is this process' own. Blocks."""

    @abstractmethod
    def connect(self) -> str | None:
        """Makes sure that there is a session, if it can be had without waiting; else returns why there is none yet."""

    @abstractmethod
    def check(self) -> None:
        """Checks the driver after an error of Spark or Py4J. Raises DriverLost where there is no driver any more."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the driver, which ends where it is this process' own."""


class OwnDriver(Driver):
    """A driver whose JVM is this process' child. Where it ends the process does too (`session.lost_jvm`)."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings

    def open(self) -> None:
        self.session = session(self._settings)
        authenticate(self.session.sparkContext._gateway)

    def connect(self) -> str | None:
        return None

    def check(self) -> None:
        """Does nothing: it is never lost, see `lost_jvm`."""

    def close(self) -> None:
        if self.session is not None:
            self.session.stop()
            self.session = None


class EngineDriver(Driver):
    """The driver of the engine: a session of its own in it, by a gateway of its own."""

    def __init__(
        self, run_dir: Path, name: str, scratch_dir: Path, environment: Callable[[], Mapping[str, str]]
    ) -> None:
        """`environment` is that of the executors' Pythons, beyond what the engine sets."""
        self._request = GatewayRequest(run_dir, name)
        self._name = name
        self._scratch_dir = scratch_dir
        self._environment = environment

    def open(self) -> None:
        import pyspark.sql  # noqa: F401 - takes half a second, in which the engine may be starting

    def connect(self) -> str | None:
        if self.session is not None:
            return None
        answer = self._request.poll()
        if not isinstance(answer, Gateway):
            return answer
        java = None
        try:
            java = answer.connect()
            self.session = self._joined(java, answer.callback_port)
        except AgentError:  # the user's code, which another try would not cure
            self._leave(java)
            raise
        except Exception as error:  # py4j's and PySpark's alike: the next turn tries anew
            log.debug("the engine cannot be used", exc_info=True)
            self._leave(java)
            return f"the engine cannot be used: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
        log.info("uses the engine, pid %d", answer.engine_pid)
        return None

    def check(self) -> None:
        if self.session is None:
            raise DriverLost("there is no engine")
        try:
            is_stopped = self.session._jsparkSession.sparkContext().isStopped()
        except Exception:  # whatever py4j raises of a connection that is gone
            is_stopped = True
        if is_stopped:
            self._leave()
            what = "does not answer" if deadline.left() <= 0 else "has ended"
            raise DriverLost(f"the engine {what}; waiting for the next one")

    def close(self) -> None:
        self._leave()

    def _joined(self, java: Any, callback_port: int) -> SparkSession:
        """Returns a session of this process in the engine's context."""
        from pyspark import SparkConf
        from pyspark.sql import SparkSession

        use_this_python()
        jsession = java.entry_point
        jcontext = java.jvm.JavaSparkContext.fromSparkContext(jsession.sparkContext())
        interrupted = signal.getsignal(signal.SIGINT)
        try:
            context = _shared_context()(jsc=jcontext, gateway=java, conf=SparkConf(_jconf=jcontext.getConf()))
        finally:
            signal.signal(signal.SIGINT, interrupted)  # PySpark would have it cancel the jobs of all workers
        self._make_private(context)
        joined = SparkSession(context, jsession)
        authenticate(java, callback_port)
        context.setLocalProperty("spark.scheduler.pool", self._name)
        return joined

    def _make_private(self, context: SparkContext) -> None:
        """Removes what would tie the engine to this process, and adds what it gives to the executors' Pythons."""
        inner: Any = context
        # With each task that ends, the engine's scheduler would report to this process, and wait for its answer: one
        # worker that is frozen would hold up all.
        inner._accumulatorServer.shutdown()
        inner._javaAccumulator = None
        shutil.rmtree(inner._temp_dir, ignore_errors=True)  # nobody else removes it before the engine ends
        inner._temp_dir = str(self._scratch_dir)
        inner.environment.update(self._environment())

    def _leave(self, gateway: Any = None) -> None:
        """Forgets the session; closes the gateway, on both sides if the engine is there."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context: Any = SparkContext
        gateway, self.session = gateway or context._gateway, None
        context._active_spark_context = context._gateway = context._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        if gateway is not None:
            gateway.shutdown()  # raises nothing


def _shared_context() -> type[SparkContext]:
    """Returns PySpark's SparkContext, which does not stop what all workers share: neither where its making fails half
    way, nor at the word of the user's code (`frame.sparkSession.stop()`)."""
    from pyspark import SparkContext

    class Shared(SparkContext):  # type: ignore[misc]
        def stop(self) -> None:
            self._jsc = None
            super().stop()

    return Shared
