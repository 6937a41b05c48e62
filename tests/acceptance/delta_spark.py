"""Delta for Spark in its own process, the other engine that reads and writes a fleet's tables.

`python delta_spark.py FOLDER`: each line of stdin is a statement in JSON, each line of stdout its answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from kctl_agent.spark.conf import use_this_python
from tests.conftest import BRIEF_JVM
from tests.delta_jars import delta_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # tasks of a VACUUM, else 10,000
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",  # so that the plan is the one that ran, with its metrics
    "spark.ui.showConsoleProgress": "false",
}


class DeltaRefused(Exception):
    def __init__(self, condition: str, message: str) -> None:
        super().__init__(f"{condition}: {message}")
        self.condition = condition


@dataclass(frozen=True, slots=True)
class Found:
    rows: list[list[Any]]
    files_read: int | None  # None if the statement scans no files of the table


class DeltaSpark:
    """Starts in the background. The first statement waits for it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__), folder],
            env={**os.environ, "PYTHONPATH": str(ROOT), "TZ": "UTC"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> DeltaSpark:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def sql(self, statement: str) -> Found:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(statement) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise DeltaRefused(*answer["error"])
        return Found(answer["rows"], answer["files_read"])


def delta_rs_rows(table: Path, columns: Sequence[str]) -> list[list[Any]]:
    return [plain(row) for row in DeltaTable(table).to_pyarrow_table(columns=list(columns)).to_pylist()]


def plain(value: Any) -> Any:
    """Makes values of all readers comparable, and fit for JSON."""
    if isinstance(value, datetime):
        return (value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value).isoformat()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, Mapping):
        return plain(list(value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def lone_session(folder: Path, conf: Mapping[str, str]) -> SparkSession:
    """Runs one task at a time, and writes only inside the folder."""
    from pyspark.sql import SparkSession

    use_this_python()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    given = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder} {BRIEF_JVM}",
        **conf,
    }
    return SparkSession.builder.master("local[1]").config(map=given).getOrCreate()


def _answer(spark: SparkSession, statement: str) -> dict[str, Any]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        frame = spark.sql(statement)
        rows = [plain(row) for row in frame.collect()]
        return {"rows": rows, "files_read": _files_read(frame)}
    except PySparkException as error:
        return {"error": [str(error.getCondition()), str(error).partition("\n")[0]]}
    except Py4JJavaError as error:  # PySpark alone does not know Delta's
        thrown = error.java_exception
        return {"error": [thrown.getClass().getSimpleName(), str(thrown.getMessage()).partition("\n")[0]]}


def _files_read(frame: DataFrame) -> int | None:
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    found = [leaves.apply(at).metrics().get("numFiles") for at in range(leaves.size())]
    counts = [metric.get().value() for metric in found if metric.isDefined()]
    return sum(counts) if counts else None


def main(folder: Path) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Delta prints how many files a VACUUM has removed
    spark = lone_session(folder, {"spark.driver.extraClassPath": ":".join(map(str, delta_jars())), **CONF})
    try:
        for line in sys.stdin:
            answers.write(json.dumps(_answer(spark, json.loads(line))) + "\n")
            answers.flush()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
