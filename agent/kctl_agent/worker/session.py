"""The Spark session of a worker: one JVM that listens on loopback only, says little, and is bounded in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kctl_agent.worker.class_archive import java_option
from kctl_agent.worker.settings import WorkerSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LOG_OPTION", "lost_jvm", "session"]

LOG_OPTION = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
"""The Java option that says what a JVM of ours logs, and where to."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
STOP_SECONDS = 10
_END_SECONDS = 2.0
"""From the end of a connection to that of the process behind it."""
POLLING_MS = 50
"""How long Spark waits before it asks the brokers again for new data. Its own default of 10 ms keeps a core busy at
rest."""
MALLOC_CONF = {
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
"""A task's Python keeps the memory of one Arrow batch for the next instead of giving it back to the kernel each time: a
batch takes 3 % less (`man 3 mallopt`, benchmarks/README.md). Other C libraries than glibc do not look at it."""


def session(settings: WorkerSettings) -> SparkSession:
    """Start the JVM and the session. Executors get this interpreter: by default they take any `python3` of the PATH."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    local = settings.pipeline.spark_master.startswith("local")
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"kctl {settings.name}").master(settings.pipeline.spark_master)
    conf = {
        "spark.jars": ",".join(settings.pipeline.jars),
        "spark.driver.memory": settings.pipeline.driver_memory,
        "spark.local.dir": str(settings.scratch_dir),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.speculation": "false",
        "spark.sql.streaming.stopTimeout": f"{STOP_SECONDS}s",
        "spark.sql.streaming.pollingDelay": f"{POLLING_MS}ms",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        **MALLOC_CONF,
        **settings.pipeline.conf,
    }
    # Spark unpacks libraries and artifacts into java.io.tmpdir, and a killed JVM leaves them there.
    options = f'{LOG_OPTION} "-Djava.io.tmpdir={settings.scratch_dir}"'
    given = conf.get(JAVA_OPTIONS, "")
    options = f"{options} {java_option(given)} {given}"
    for key, value in {**conf, JAVA_OPTIONS: options}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def lost_jvm(error: BaseException) -> str | None:
    """How the JVM has ended, where that is why `error` came: what Py4J says of it is a refused connection. None: it has
    not."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - PySpark tells nobody of its JVM's process
    if process is None or not isinstance(error, Py4JError | OSError):
        return None
    try:
        code = process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return f"its JVM died (signal {-code})" if code < 0 else f"its JVM ended (exit code {code})"
