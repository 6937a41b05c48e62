"""The Spark properties of a driver, and the file by which its JVM gets them.

On a command line, as PySpark hands them on, every user of the machine could read them in the list of processes.
"""

from __future__ import annotations

import os
import re
import string
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kctl_agent.secrecy import SECRET_NAMES
from kctl_agent.spark.settings import SparkSettings

LOG_OPTION = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
"""The Java option that sets what the JVM of a driver logs, and where to."""
STOP_SECONDS = 10
POLLING_MS = 50
"""How long Spark waits before it asks the brokers again. Its own default of 10 ms keeps a core busy at rest."""
MALLOC_CONF = {
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}
"""A task's Python keeps the memory of one Arrow batch for the next instead of giving it back to the kernel each time: a
batch takes 3 % less (`man 3 mallopt`, benchmarks/README.md). Other C libraries than glibc ignore it."""
CHECKPOINT_FILES = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""Hadoop without its native library starts `readlink` and `chmod` for what it does with a file: twelve processes for
the two log entries of a batch as Spark writes them by itself, four this way, and 0.1 s less (benchmarks/README.md)."""
KEPT_JOBS = 20
KEPT_TASKS = 1000
KEPT_CONSUMERS = 1000
"""Kafka consumers of a JVM, until it is known how many partitions are read (`kept_consumers`). With Spark's 64 a batch
over 400 partitions takes twice as long (benchmarks/README.md)."""
IDLE_CONSUMER_MS, EVICTION_MS = 60_000, 10_000
RELEASED_RECORDS_MS = 250
"""How long fetched records may be kept after their task, once a JVM has run out of memory."""
MEMORY_EXITS = "spark.kctl.memoryExits"
"""How often JVMs with the same heap have run out of memory before."""
KEPT_PYTHONS = "spark.python.factory.idleWorkerMaxPoolSize"
"""Most idle Pythons. Spark keeps all that ever ran for a minute; with as many as processors it was as fast."""
PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
_PLAIN = frozenset(string.ascii_letters + string.digits + ".-_/,")


def use_this_python() -> None:
    """Makes executors use this interpreter: by default they take any `python3` of the PATH."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def configuration(settings: SparkSettings) -> dict[str, str]:
    """Returns all Spark properties but `spark.driver.extraJavaOptions`; those of the user win."""
    return {
        "spark.app.name": f"kctl {settings.name}",
        "spark.jars": ",".join(settings.jars),
        "spark.driver.memory": settings.driver_memory,
        "spark.local.dir": str(settings.scratch_dir),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": SECRET_NAMES,
        "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop has one of its own, for the checkpoint
        "spark.sql.session.timeZone": "UTC",
        "spark.speculation": "false",
        "spark.sql.streaming.stopTimeout": f"{STOP_SECONDS}s",
        "spark.sql.streaming.pollingDelay": f"{POLLING_MS}ms",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.python.daemon.module": "kctl_agent.worker.query.daemon",
        # `python -m` would else be searched in the executor's working directory first.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        **MALLOC_CONF,
        **CHECKPOINT_FILES,
        **_kept_consumers(memory_exits(settings)),
        **_history(settings),
        **_sharing(settings),
        **_authentication(settings),
        **_object_store(settings),
        **settings.conf,
        **_python_path(settings),
        "spark.master": settings.master,
    }


def is_local(spark_master: str) -> bool:
    """Whether driver and executors are one JVM: `local`, `local[2]`, `local[*,3]`."""
    return re.fullmatch(r"local(\[.*\])?", spark_master) is not None


@contextmanager
def properties_file(conf: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """Writes `conf` into a file that this user alone can read, until the JVM has read it. Raises OSError."""
    descriptor, name = tempfile.mkstemp(prefix="spark-conf-", dir=folder)  # 0600
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items())
        yield Path(name)
    finally:
        os.unlink(name)


def _history(settings: SparkSettings) -> dict[str, str]:
    """Returns the properties for how many ended jobs are remembered: else 1,000 of each kind."""
    if settings.conf.get("spark.ui.enabled", "false").lower() == "true":
        return {}
    return dict.fromkeys(
        (
            "spark.ui.retainedJobs",
            "spark.ui.retainedStages",
            "spark.ui.retainedDeadExecutors",
            "spark.sql.ui.retainedExecutions",
        ),
        str(KEPT_JOBS),
    ) | {"spark.ui.retainedTasks": str(KEPT_TASKS)}


def memory_exits(settings: SparkSettings) -> Path:
    """Returns the file that has a byte for each exit of a JVM with this heap for lack of memory."""
    return settings.scratch_dir / f"memory-exits-{heap_of(settings)}"


def heap_of(settings: SparkSettings) -> str:
    return settings.conf.get("spark.driver.memory", settings.driver_memory)


def _kept_consumers(noted: Path) -> dict[str, str]:
    """Returns the properties of kept consumers. Those of partitions that are not read any more are closed soon: after
    Spark's five minutes, ten kills in a row had left 16 MB and 160 descriptors. Fetched records are kept for the next
    batch, unless memory is short: their consumers would have to fetch again what a batch has left over."""
    exits = noted.stat().st_size if noted.exists() else 0
    cache = "spark.kafka.consumer.cache", IDLE_CONSUMER_MS, EVICTION_MS
    fetched = "spark.kafka.consumer.fetchedData.cache", *((0, RELEASED_RECORDS_MS) if exits else cache[1:])
    return {
        "spark.kafka.consumer.cache.capacity": str(KEPT_CONSUMERS),
        MEMORY_EXITS: str(exits),
        **{f"{name}.timeout": f"{idle}ms" for name, idle, _ in (cache, fetched)},
        **{f"{name}.evictorThreadRunInterval": f"{pause}ms" for name, _, pause in (cache, fetched)},
    }


def _sharing(settings: SparkSettings) -> dict[str, str]:
    """Returns the properties that keep workers of one driver out of each other's way: a scheduler pool each. Pythons
    that have no task are kept as many as there are processors, and not as many as all workers had tasks at a time."""
    if settings.workers == 1:
        return {}
    return {
        **({KEPT_PYTHONS: str(len(os.sched_getaffinity(0)))} if is_local(settings.master) else {}),
        "spark.scheduler.mode": "FAIR",
    }


def _object_store(settings: SparkSettings) -> dict[str, str]:
    """Returns the properties of an object store. The table's log makes a batch's files visible, all or none, so a task
    moves its own into their place: where a job does it, each is copied twice."""
    if settings.object_store is None:
        return {}
    return {
        **settings.object_store.spark_properties(),
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    }


def _authentication(settings: SparkSettings) -> dict[str, str]:
    """Returns the properties of the shared secret. A local JVM, YARN and Kubernetes draw one for each application; a
    standalone cluster has one, and where it has, messages are encrypted too."""
    if settings.auth_secret is not None:
        return {
            "spark.authenticate": "true",
            "spark.authenticate.secret": settings.auth_secret,
            "spark.network.crypto.enabled": "true",
        }
    master = settings.master
    return {"spark.authenticate": "true"} if is_local(master) or master.startswith(("yarn", "k8s://")) else {}


def _python_path(settings: SparkSettings) -> dict[str, str]:
    """Returns the property by which executors import the user's modules by their names, as the driver did."""
    if settings.import_dir is None:
        return {}
    given = settings.conf.get(PYTHON_PATH)
    return {PYTHON_PATH: os.pathsep.join(filter(None, (str(settings.import_dir), given)))}


def _escaped(text: str) -> str:
    """Escapes a text for java.util.Properties."""
    units = text.encode("utf-16-be")
    numbers = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    return "".join(chr(number) if chr(number) in _PLAIN else f"\\u{number:04x}" for number in numbers)
