"""The settings of a Spark driver, and the Spark properties made from them."""

from __future__ import annotations

import os
import re
import string
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl_agent.secrecy import SECRET_NAMES
from kctl_agent.storage.object_store import ObjectStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_OPTION = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
STOP_SECONDS = 10
CHECKPOINT_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Without its native library, Hadoop starts `readlink` and `chmod` processes: twelve for the two log entries of a batch
by default, four with this class, which saves 0.1 s (benchmarks/README.md)."""
KEPT_CONSUMERS = 1000
"""Kafka consumers that a JVM keeps until the number of partitions is known (`kept_consumers`). With Spark's 64, a batch
over 400 partitions takes twice as long (benchmarks/README.md)."""
IDLE_CONSUMER_MS, EVICTION_MS = 60_000, 10_000
RELEASED_RECORDS_MS = 250
MEMORY_EXITS = "spark.kctl.memoryExits"
MEMORY_EXITS_SECONDS = 86_400.0  # older exits are forgotten: the large records may have been a few
CAPACITY = "spark.kafka.consumer.cache.capacity"
CONSUMER_BYTES, PARTITION_BYTES = 65_000, 650
"""Each partition has a consumer, which knows all partitions of its topic (kafka-clients 3.9.2, benchmarks/README.md).
It also keeps its last fetched records, whose size is unknown until they are read."""
HEAP_SHARE = 0.5
DEFAULT_CAPACITY = 64
FETCHED_BYTES = 1 << 20
"""The assumed size of a consumer's fetched records, multiplied by four after each out-of-memory exit. A consumer keeps
the last and the next record, and brokers accept 1 MB by default (`message.max.bytes`)."""
KEPT_PYTHONS = "spark.python.factory.idleWorkerMaxPoolSize"
"""Idle Pythons. Spark keeps all for a minute; one per processor was as fast."""
PYTHON_PATH = "spark.executorEnv.PYTHONPATH"
_PLAIN = frozenset(string.ascii_letters + string.digits + ".-_/,")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    name: str
    master: str
    driver_memory: str
    jars: tuple[str, ...]
    conf: dict[str, str] = field(repr=False)
    scratch_dir: Path
    import_dir: Path | None
    auth_secret: str | None = field(default=None, repr=False)
    object_store: ObjectStore | None = field(default=None, repr=False)
    workers: int = 1

    @classmethod
    def of(cls, given: dict[str, Any], name: str, scratch_dir: Path) -> SparkSettings:
        given = dict(given)
        import_dir, storage = given["import_dir"], given.pop("storage")
        made = {
            "jars": tuple(given["jars"]),
            "object_store": None if storage is None else ObjectStore.of(storage),
            "import_dir": None if import_dir is None else Path(import_dir),
        }
        return cls(name=name, scratch_dir=scratch_dir, **{**given, **made})


def use_this_python(of_executors: str | None = None) -> None:
    """Sets the Python of executors, by default this interpreter. Spark would use `python3` from the PATH."""
    os.environ["PYSPARK_PYTHON"] = of_executors or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def configuration(settings: SparkSettings) -> dict[str, str]:
    """Returns the Spark properties without kctl's own Java options. The user's properties take precedence."""
    return {
        "spark.app.name": f"kctl {settings.name}",
        "spark.jars": ",".join(settings.jars),
        "spark.driver.memory": settings.driver_memory,
        "spark.local.dir": str(settings.scratch_dir),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": SECRET_NAMES,
        "spark.hadoop.fs.permissions.umask-mode": "077",  # for the checkpoint: Hadoop has its own umask
        "spark.sql.session.timeZone": "UTC",
        "spark.speculation": "false",
        "spark.sql.streaming.stopTimeout": f"{STOP_SECONDS}s",
        "spark.sql.streaming.pollingDelay": "50ms",  # the default of 10 ms keeps a core busy at rest
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.python.daemon.module": "kctl_agent.worker.query.daemon",
        # Otherwise `python -m` searches the executor's working directory first.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        # glibc then keeps one Arrow batch's memory for the next: 3 % less time (`man 3 mallopt`, benchmarks/README.md).
        "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 << 20),
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
        **_kept_consumers(memory_exits(settings)),
        **_history(settings),
        **_sharing(settings),
        **_authentication(settings),
        **({} if settings.object_store is None else settings.object_store.spark_properties()),
        **settings.conf,
        **_python_path(settings),
        "spark.master": settings.master,
    }


def is_local(spark_master: str) -> bool:
    """Whether driver and executors are in one JVM, as with `local`, `local[2]` and `local[*,3]`."""
    return re.fullmatch(r"local(\[.*\])?", spark_master) is not None


@contextmanager
def properties_file(conf: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """Writes the properties into a file that only this user can read, and deletes it afterwards. Raises OSError."""
    # Spark also accepts properties on its command line, but every user can read that.
    descriptor, name = tempfile.mkstemp(prefix="spark-conf-", dir=folder)  # 0600
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.writelines(f"{_escaped(key)}={_escaped(value)}\n" for key, value in conf.items())
        yield Path(name)
    finally:
        os.unlink(name)


def _history(settings: SparkSettings) -> dict[str, str]:
    if settings.conf.get("spark.ui.enabled", "false").lower() == "true":
        return {}
    names = ("ui.retainedJobs", "ui.retainedStages", "ui.retainedDeadExecutors", "sql.ui.retainedExecutions")
    return {f"spark.{name}": "20" for name in names} | {"spark.ui.retainedTasks": "1000"}


def memory_exits(settings: SparkSettings) -> Path:
    return settings.scratch_dir / f"memory-exits-{heap_of(settings)}"


def heap_of(settings: SparkSettings) -> str:
    return settings.conf.get("spark.driver.memory", settings.driver_memory)


def _kept_consumers(noted: Path) -> dict[str, str]:
    if noted.exists() and time.time() - noted.stat().st_mtime > MEMORY_EXITS_SECONDS:
        noted.unlink()
    exits = noted.stat().st_size if noted.exists() else 0
    # With Spark's idle time of five minutes, ten killed workers left 16 MB and 160 descriptors in use.
    cache = "spark.kafka.consumer.cache", IDLE_CONSUMER_MS, EVICTION_MS
    fetched = "spark.kafka.consumer.fetchedData.cache", *((0, RELEASED_RECORDS_MS) if exits else cache[1:])
    return {
        "spark.kafka.consumer.cache.capacity": str(KEPT_CONSUMERS),
        MEMORY_EXITS: str(exits),
        **{f"{name}.timeout": f"{idle}ms" for name, idle, _ in (cache, fetched)},
        **{f"{name}.evictorThreadRunInterval": f"{pause}ms" for name, _, pause in (cache, fetched)},
    }


def _sharing(settings: SparkSettings) -> dict[str, str]:
    if settings.workers == 1:
        return {}
    return {
        **({KEPT_PYTHONS: str(len(os.sched_getaffinity(0)))} if is_local(settings.master) else {}),
        "spark.scheduler.mode": "FAIR",
    }


def _authentication(settings: SparkSettings) -> dict[str, str]:
    if settings.auth_secret is not None:
        return {
            "spark.authenticate": "true",
            "spark.authenticate.secret": settings.auth_secret,
            "spark.network.crypto.enabled": "true",
        }
    master = settings.master  # a local JVM, YARN and Kubernetes generate a secret for each application
    return {"spark.authenticate": "true"} if is_local(master) or master.startswith(("yarn", "k8s://")) else {}


def _python_path(settings: SparkSettings) -> dict[str, str]:
    if settings.import_dir is None:
        return {}
    given = settings.conf.get(PYTHON_PATH)
    return {PYTHON_PATH: os.pathsep.join(filter(None, (str(settings.import_dir), given)))}


def _escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    numbers = [int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2)]
    return "".join(chr(number) if chr(number) in _PLAIN else f"\\u{number:04x}" for number in numbers)


def limit_kept_consumers(session: SparkSession, topics: Collection[int]) -> str | None:
    """Sets how many Kafka consumers Spark keeps between batches. Returns a warning if the heap is too small for one
    consumer per partition. `topics` has the number of partitions of each topic. Call it before the first batch."""
    context = session.sparkContext
    if not is_local(context.master):
        return None
    conf = context._jvm.org.apache.spark.SparkEnv.get().conf()  # noqa: SLF001 - PySpark has no other way to its JVM
    if conf.get(CAPACITY) != str(KEPT_CONSUMERS):
        return None
    heap = context._jvm.java.lang.Runtime.getRuntime().maxMemory()  # noqa: SLF001
    exits = int(conf.get(MEMORY_EXITS, "0"))
    fetched = FETCHED_BYTES << 2 * exits if exits else 0
    kept = kept_consumers(topics, int(heap * HEAP_SHARE), fetched)
    conf.set(CAPACITY, str(kept))
    if kept >= sum(topics):
        return None
    needed = _bytes(topics, fetched) / HEAP_SHARE
    return (
        f"{kept:,} of {sum(topics):,} consumers are kept between batches, and the others are reopened for each: to "
        f"keep all, the JVM needs a heap of {needed / (1 << 20):,.0f} MB and has {heap / (1 << 20):,.0f} (engine.heap, "
        "spark.driver_memory)"
    )


def kept_consumers(topics: Collection[int], room: int, fetched: int) -> int:
    if _bytes(topics, fetched) <= room:
        return max(sum(topics), KEPT_CONSUMERS)
    return max(room // _of_one(max(topics), fetched), 1 if fetched else DEFAULT_CAPACITY)


def _bytes(topics: Collection[int], fetched: int) -> int:
    return sum(partitions * _of_one(partitions, fetched) for partitions in topics)


def _of_one(partitions: int, fetched: int) -> int:
    return CONSUMER_BYTES + PARTITION_BYTES * partitions + fetched
