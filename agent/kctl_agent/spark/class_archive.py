"""An archive of Spark's loaded and verified classes, which cuts a worker's start time by a third.

This is Java's class data sharing (JEP 350). A JVM ignores an archive made by another Java or with other jars. Run
`python -m kctl_agent.spark.class_archive` once for each Python environment to make its archive (150 MB).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from kctl_agent.spark.conf import LOG_OPTION, use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPTION = "-XX:SharedArchiveFile"
_QUIETLY = "-XX:TieredStopAtLevel=1 -Xlog:cds*=off"


def options(path: Path) -> tuple[str, ...]:
    """Returns Java options that load the archive at the memory address recorded in it."""
    # By default, newer Java versions choose another address (JDK-8294323). Adapting the archive to it takes 0.1 s.
    return f"-XX:SharedArchiveFile={path}", "-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"


def fingerprint(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        found = path.stat()
        digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def is_private(path: Path) -> bool:
    """Whether only this user or root can write the file. If not, a JVM might run the code of another user."""
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid in (os.geteuid(), 0) and not found.st_mode & 0o022


@contextmanager
def recording(path: Path, kept: int) -> Iterator[Path]:
    """Yields a temporary path for a JVM's archive. Then moves the archive to `path`, such as `spark-1.jsa`, and keeps
    only the `kept` newest `spark-*.jsa`. Raises OSError, and RuntimeError if the JVM wrote no archive."""
    with TemporaryDirectory(prefix=".record-", dir=path.parent, ignore_cleanup_errors=True) as folder:
        fresh = Path(folder, path.name)
        yield fresh
        if not fresh.exists():
            raise RuntimeError("this Java wrote no class archive")
        fresh.replace(path)
    kind = path.name.partition("-")[0]
    archives = sorted(path.parent.glob(f"{kind}-*.jsa"), key=lambda each: each.stat().st_mtime)
    for old in archives[:-kept]:
        old.unlink(missing_ok=True)


def archive_path() -> Path:
    """Returns the archive's path, which depends on the installed Java and Spark. Raises OSError if there is no Java."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    jars = sorted(Path(spark.origin).with_name("jars").glob("*.jar"))
    return Path(sys.prefix, "share", "kctl", f"spark-{fingerprint([_java(), *jars])}.jsa")


def java_options(given: str) -> str:
    if _OPTION in given or "-Xshare:" in given:
        return ""
    try:
        path = archive_path()
    except OSError:  # without a Java, which Spark itself will report
        return ""
    return " ".join(f'"{option}"' for option in options(path)) if is_private(path) else ""


def record() -> Path:
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with recording(path, kept=1) as fresh:
        gateway = None
        try:
            # If the signal's handler raised while PySpark starts its JVM, the JVM would keep running.
            with _later(signal.SIGTERM):
                spark = _session(fresh)
                gateway = spark.sparkContext._gateway  # noqa: SLF001
            assert gateway is not None
            _run_a_batch(spark, fresh.parent)
            spark.stop()
            # The JVM writes the archive at its end, which PySpark itself does not await.
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait()
        finally:
            if gateway is not None:
                gateway.proc.kill()
    return path


@contextmanager
def _later(number: signal.Signals) -> Iterator[None]:
    came: list[int] = []
    handler = signal.signal(number, lambda *_: came.append(number))
    try:
        yield
    finally:
        signal.signal(number, handler)
        if came:
            signal.raise_signal(number)


def _session(fresh: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    use_this_python()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.extraJavaOptions", f'"-XX:ArchiveClassesAtExit={fresh}" {_QUIETLY} {LOG_OPTION}')
        .config("spark.local.dir", str(fresh.parent))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not found:
        raise FileNotFoundError("there is no `java` on the PATH")
    return Path(found).resolve()


def _run_a_batch(spark: SparkSession, folder: Path) -> None:
    source = folder / "source"
    source.mkdir()
    (source / "records").write_text("one\n")
    lines = spark.readStream.text(str(source))
    query = (
        lines.writeStream.foreachBatch(
            lambda frame, _: frame.mapInArrow(lambda batches: batches, "value string").collect()
        )
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the temporary folder is removed
    sys.stderr.write(f"class archive: {archive_path() if java_options('') else record()}\n")
