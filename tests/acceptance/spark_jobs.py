"""Runs queries of tests on a Spark of any version in its own process; see `checkpoint_jobs.py`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pyspark

from kctl.jars.lock import jar_paths, jars_dir
from tests.conftest import BRIEF_JVM

SCRIPT = Path(__file__).with_name("checkpoint_jobs.py")
SCALA = """
import org.apache.spark.sql.functions.{{count, lit, window}}
import org.apache.spark.sql.streaming.Trigger
val source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "{bootstrap}")
val records = source.option("subscribe", "{topics}").option("startingOffsets", "earliest").load()
val windows = records.withWatermark("timestamp", "1 minute").groupBy(window($"timestamp", "10 seconds"), $"topic")
val writer = windows.agg(count(lit(1))).writeStream.format("noop").outputMode("update")
val timed = writer.trigger(Trigger.ProcessingTime("1 second"))
val query = timed.option("checkpointLocation", "{checkpoint}").start()
"""
_Self = TypeVar("_Self", bound="SparkProcess")


@dataclass(frozen=True)
class Outcome:
    """A query's final error, and its batches: number, rows, first and next offsets."""

    version: str
    error: str | None
    batches: list[dict[str, Any]]

    @property
    def rows(self) -> int:
        return sum(int(batch["rows"]) for batch in self.batches)


def jars() -> str:
    return ",".join(map(str, jar_paths("spark")))


@cache
def python_with(version: str) -> str:
    folder = jars_dir().parent / f"pyspark-{version}"
    if not folder.exists():
        new, uv = folder.with_name(f"{folder.name}.new"), Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "-q", "--clear", "--relocatable", "-p", sys.executable, new], check=True)
        python = str(new / "bin" / "python")
        subprocess.run([uv, "pip", "install", "-q", "--python", python, f"pyspark=={version}"], check=True)
        new.rename(folder)
    return str(folder / "bin" / "python")


class SparkProcess:
    def __init__(self, command: Sequence[str | Path], env: dict[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={key: value for key, value in os.environ.items() if key != "SPARK_HOME"} | env,
            text=True,
            start_new_session=True,
        )

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._log.close()

    def kill(self) -> None:
        # Kills Python and JVM at once, as `kill -9` or the loss of a container does.
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def stop(self) -> None:
        raise NotImplementedError

    def _enter(self, lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(lines)
        self._process.stdin.flush()


class SparkJobs(SparkProcess):
    """Each query runs until it has read everything or has failed."""

    def __init__(self, bootstrap: str, log: Path, version: str = pyspark.__version__, conf: Sequence[str] = ()) -> None:
        self.version = version
        python, own = sys.executable, jars()
        if version != pyspark.__version__:
            python, own = python_with(version), ""
            scala = "2.12" if version.startswith("3.") else "2.13"
            conf = [f"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_{scala}:{version}", *conf]
        env = {"PYSPARK_PYTHON": python, "SPARK_LAUNCHER_OPTS": BRIEF_JVM}
        super().__init__([python, SCRIPT, bootstrap, own, *conf], env, log)
        self._read()

    def begin(self, checkpoint: Path, topics: Sequence[str], **job: Any) -> None:
        assert self._answer({"checkpoint": str(checkpoint), "topics": topics, "forever": True, **job}) == {
            "started": True
        }

    def stop(self) -> None:
        assert self._answer({})["error"] is None

    def run(self, checkpoint: Path, topics: Sequence[str], **job: Any) -> Outcome:
        return Outcome(**self._answer({"checkpoint": str(checkpoint), "topics": topics, **job}))

    def _answer(self, job: dict[str, Any]) -> dict[str, Any]:
        self._enter(json.dumps(job) + "\n")
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise AssertionError(f"Spark ended, see {self._log.name}")


class ScalaJob(SparkProcess):
    """A query in Scala that counts messages per window, in `spark-shell` of PySpark's wheel."""

    def __init__(self, bootstrap: str, log: Path, conf: Sequence[str], checkpoint: Path, topics: Sequence[str]) -> None:
        home = Path(pyspark.__file__).parent
        settings = ["spark.ui.enabled=false", "spark.sql.shuffle.partitions=2", *conf]
        options = [word for each in settings for word in ("--conf", each)]
        super().__init__(
            [home / "bin" / "spark-shell", "--master", "local[2]", "--jars", jars(), *options],
            {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": BRIEF_JVM},
            log,
        )
        self._enter(SCALA.format(bootstrap=bootstrap, topics=",".join(topics), checkpoint=checkpoint))

    def stop(self) -> None:
        self._enter("query.stop()\n")
