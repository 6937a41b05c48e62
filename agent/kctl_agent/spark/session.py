"""A Spark driver whose JVM is a child process. With a local master, the JVM listens on loopback only."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from socketserver import TCPServer
from typing import TYPE_CHECKING

from kctl_agent.peers import is_own
from kctl_agent.process import deadline
from kctl_agent.spark import class_archive
from kctl_agent.spark.conf import (
    LOG_OPTION,
    SparkSettings,
    configuration,
    heap_of,
    is_local,
    memory_exits,
    properties_file,
    use_this_python,
)
from kctl_agent.spark.gateway import exported, launched
from kctl_agent.spark.py4j_security import guard_connections
from kctl_agent.spark.without_pandas import convert_without_pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAP_OPTIONS = (
    "-Xms128m -XX:MetaspaceSize=128m -XX:G1PeriodicGCInterval=15000 -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
)
"""By default Java starts with a 64th of the machine's memory, and never returns memory after a backlog. After 15 s
without a collection, G1 checks in the background (JEP 346)."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_OUT_OF_MEMORY = "its JVM has run out of memory"
_OUT_OF_MEMORY_CODE = 3  # exit code of a JVM with `-XX:+ExitOnOutOfMemoryError`
LC_ALL = "LC_ALL"
UTF8 = "C.UTF-8"
"""The locale of a JVM, which names files by it. In another one, several names may become one (`m?ll`), or none can be
written, as on a host without its configured locale (`LANG=de_DE.UTF-8` by ssh)."""
PYTHON_LC_ALL = f"spark.executorEnv.{LC_ALL}"
"""The executors' Pythons otherwise inherit the JVM's locale."""
_LEFT = ("query-*", "manifest-*", "blockmgr-*", "spark-*", "artifacts-*", "liblz4-java-*")


def session(settings: SparkSettings) -> SparkSession:
    use_this_python(settings.conf.get("spark.pyspark.python"))
    guard_connections()
    convert_without_pandas()
    if is_local(settings.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    conf = configuration(settings)
    conf[JAVA_OPTIONS] = java_options(settings.scratch_dir, conf.get(JAVA_OPTIONS, ""))
    with ExitStack() as started:
        if is_local(settings.master):  # empty means unset: setlocale(3)
            conf.setdefault(PYTHON_LC_ALL, os.environ.get(LC_ALL, ""))
        started.enter_context(exported(LC_ALL, UTF8))
        started.enter_context(_submitting(started.enter_context(properties_file(conf, settings.scratch_dir))))
        if SparkContext._gateway is None:  # noqa: SLF001 - PySpark has no public name for an existing JVM
            SparkContext._ensure_initialized(gateway=launched())  # noqa: SLF001
        spark = SparkSession.builder.getOrCreate()
    serve_this_user(spark.sparkContext._accumulatorServer)  # noqa: SLF001
    return spark


def serve_this_user(accumulators: TCPServer) -> None:
    """Makes Spark's accumulator server reject other users' connections. A connection that sends nothing would block
    the server, and with it Spark's scheduler."""
    accumulators.verify_request = lambda peer, _: is_own(peer)  # type: ignore[method-assign, assignment, arg-type]


def java_options(scratch_dir: Path, given: str) -> str:
    """Returns the JVM's options. The user's options take precedence."""
    # Spark unpacks libraries and artifacts into java.io.tmpdir, and a killed JVM leaves them there.
    # A JVM that has run out of memory may live on uselessly: any of its threads may have ended.
    ours = f'{LOG_OPTION} "-Djava.io.tmpdir={scratch_dir}" -XX:+ExitOnOutOfMemoryError'
    return f"{ours} {HEAP_OPTIONS} {class_archive.java_options(given)} {given}"


def _submitting(properties: Path) -> AbstractContextManager[None]:
    words = ["--properties-file", str(properties), "--load-spark-defaults"]
    return exported(SUBMIT_ARGUMENTS, f"{shlex.join(words)} {os.environ.get(SUBMIT_ARGUMENTS) or 'pyspark-shell'}")


def lost_jvm(error: BaseException) -> str | None:
    """Returns how the JVM ended, or that it hangs, if this caused `error`. Otherwise returns None."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - PySpark has no public name for its JVM's process
    if process is None or not isinstance(error, Py4JError | OSError):
        return None
    try:
        code = process.wait(2.0)  # a JVM may close its connections so long before it exits
    except subprocess.TimeoutExpired:
        return "its JVM does not answer" if deadline.left() <= 0 else None
    if code == _OUT_OF_MEMORY_CODE:
        return _OUT_OF_MEMORY
    return f"its JVM died (signal {-code})" if code < 0 else f"its JVM ended (exit code {code})"


def why_lost(error: BaseException, settings: SparkSettings | None, heap_setting: str) -> str | None:
    """Like `lost_jvm`. If the JVM ran out of memory, also names `heap_setting`, and counts this in `memory_exits`."""
    why = lost_jvm(error)
    if settings is None or why != _OUT_OF_MEMORY:
        return why
    # After such an exit, the next JVM keeps fetched Kafka records in its cache for a shorter time.
    with suppress(OSError), memory_exits(settings).open("ab") as noted:  # a full disk
        noted.write(b".")
    return f"out of memory (heap {heap_of(settings)}): raise {heap_setting}"


def sweep(scratch_dir: Path) -> None:
    """Removes a killed driver's files. Call it only while owning the agent socket, so that no driver uses them."""
    for pattern in _LEFT:
        for left in scratch_dir.glob(pattern):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
