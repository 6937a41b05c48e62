"""The Spark driver of a worker: its own, or the engine's. A process has one Spark context. Main thread only."""

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
from kctl_agent.spark.conf import SparkSettings, use_this_python
from kctl_agent.spark.gateway import Gateway, GatewayRequest
from kctl_agent.spark.py4j_security import authenticate
from kctl_agent.spark.session import session

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class DriverLost(AgentError, code="driver_lost"):
    """A worker's engine has ended or hangs. The worker waits for the next engine."""


class ApplicationEnded(AgentError, code="application_ended"):
    """The Spark cluster has ended the application of an engine, or of a worker with its own driver. The process ends,
    and the next process starts another application."""


def check_application(session: SparkSession) -> None:
    """Checks whether the cluster has ended Spark's application. If so, raises ApplicationEnded."""
    if session.sparkContext._jsc.sc().isStopped():
        raise ApplicationEnded(
            f"the cluster {session.sparkContext.master} has ended this application: its executors end as soon as they "
            "start (can they reach spark.driver.host?), or the cluster's master was away for too long"
        )


class Driver(ABC):
    session: SparkSession | None = None

    @abstractmethod
    def open(self) -> None: ...

    @abstractmethod
    def connect(self) -> str | None:
        """Sets `session` and returns None, or returns why there is no session yet. Does not wait for the engine."""

    @abstractmethod
    def check(self) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Ends the driver if it belongs to this process. Otherwise disconnects from the engine."""


class OwnDriver(Driver):
    """A driver whose JVM is a child of this process. If the JVM ends, the process ends too."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings

    def open(self) -> None:
        self.session = session(self._settings)
        authenticate(self.session.sparkContext._gateway)

    def connect(self) -> str | None:
        return None

    def check(self) -> None:
        if self.session is None:
            return
        try:
            check_application(self.session)
        except ApplicationEnded:
            raise
        except Exception:  # Py4J raises several errors for a dead JVM
            log.debug("Spark's context cannot be asked", exc_info=True)

    def close(self) -> None:
        if self.session is not None:
            self.session.stop()
            self.session = None


class EngineDriver(Driver):
    def __init__(
        self, run_dir: Path, name: str, scratch_dir: Path, environment: Callable[[], Mapping[str, str]]
    ) -> None:
        """`environment` returns environment variables for the executors' Pythons, in addition to the engine's."""
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
        except AgentError:  # the user's code: a retry would not help
            self._leave(java)
            raise
        except Exception as error:  # from Py4J or PySpark: the next turn tries again
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
        except Exception:  # Py4J raises several errors for a lost connection
            is_stopped = True
        if is_stopped:
            self._leave()
            what = "does not answer" if deadline.left() <= 0 else "has ended"
            raise DriverLost(f"the engine {what}; waiting for the next one")

    def close(self) -> None:
        self._leave()

    def _joined(self, java: Any, callback_port: int) -> SparkSession:
        from pyspark import SparkConf
        from pyspark.sql import SparkSession

        jsession = java.entry_point
        jcontext = java.jvm.JavaSparkContext.fromSparkContext(jsession.sparkContext())
        use_this_python(jcontext.getConf().get("spark.pyspark.python", ""))
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
        inner: Any = context
        # Otherwise the engine's scheduler waits for this process after each task, and a frozen worker would block all.
        inner._accumulatorServer.shutdown()
        inner._javaAccumulator = None
        shutil.rmtree(inner._temp_dir, ignore_errors=True)  # otherwise it stays until the engine ends
        inner._temp_dir = str(self._scratch_dir)
        inner.environment.update(self._environment())

    def _leave(self, gateway: Any = None) -> None:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context: Any = SparkContext
        gateway, self.session = gateway or context._gateway, None
        context._active_spark_context = context._gateway = context._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        if gateway is not None:
            gateway.shutdown()  # raises nothing


def _shared_context() -> type[SparkContext]:
    from pyspark import SparkContext

    class Shared(SparkContext):  # type: ignore[misc]
        def stop(self) -> None:
            # Keeps the engine's context running if a constructor fails, or if the user's code stops its session.
            self._jsc = None
            super().stop()

    return Shared
