"""Writes a batch as Parquet files, and finds the files that belong to it.

Spark may run a task twice, even at the same time, and an abandoned attempt may continue to write. So kctl uses the
commit protocol of Spark's streaming file sink, which gives each file a random name and does not rename files. For each
task, the driver gets the file names of one attempt. kctl compares the rows in these files with Spark's count, to
notice missing files.
"""

# ruff: noqa: SLF001 - PySpark chooses no protocol for one job, and waits for an observation without end
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from kctl_agent.storage.base import StorageUnusable


def write_committed(rows: DataFrame, uri: str, partition_by: Sequence[str]) -> frozenset[str]:
    """Writes rows and returns the names of the committed files. When it returns, observations of `rows` are complete.
    Raises OSError, and errors of Spark and of the user's code."""
    session: Any = rows.sparkSession._jsparkSession
    jvm: Any = rows.sparkSession._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)  # a thread of our own has none
    sql, python = jvm.org.apache.spark.sql.execution, jvm.org.apache.spark.api.python.PythonUtils
    none, empty = jvm.scala.Option.empty(), python.toScalaMap({})
    plan = rows._jdf.queryExecution()
    output = plan.analyzed().output()
    # Like `DataFrameWriter`, with another protocol of Spark's, whose manifest goes to this machine.
    with TemporaryDirectory(prefix="manifest-", dir=jvm.java.lang.System.getProperty("java.io.tmpdir")) as folder:
        manifest = sql.streaming.sinks.FileStreamSinkLog(1, session, f"file://{folder}", none)
        protocol = sql.streaming.ManifestFileCommitProtocol("0", uri)
        protocol.setupManifestOptions(manifest, 0)
        sql.datasources.FileFormatWriter.write(
            session,
            plan.executedPlan(),
            sql.datasources.parquet.ParquetFileFormat(),
            protocol,
            getattr(sql.datasources, "FileFormatWriter$OutputSpec")(uri, empty, output),
            session.sessionState().newHadoopConf(),
            python.toSeq([_column(output, name) for name in partition_by]),
            none,
            python.toSeq([]),
            empty,
            0,
        )
        session.observationManager().tryComplete(plan)
        _, *files = (Path(folder) / "0").read_text().splitlines()
    name = f"/{uri.rpartition('/')[2]}/"
    return frozenset(unquote(json.loads(file)["path"]).partition(name)[2] for file in files)


def _column(output: Any, name: str) -> Any:
    columns = (output.apply(number) for number in range(output.size()))
    return next(column for column in columns if column.name() == name)


REPORT_SECONDS = 60
"""The longest wait for Spark's report of a count: an overloaded listener bus drops events."""


class CountedRows:
    def __init__(self, rows: DataFrame) -> None:
        self._seen = Observation()
        self.rows = rows.observe(self._seen, f.count("*").alias("count"))

    @property
    def count(self) -> int:
        """The number of `rows`. Read it after an action on them. Raises StorageUnusable if Spark does not report it."""
        found = observed(self._seen)
        return int(found["count"]) if found else 0


def observed(seen: Observation) -> dict[str, Any] | None:
    """Returns the observed values, or None if Spark ran no job. Raises StorageUnusable if Spark does not report."""
    inner: Any = seen
    scala = inner._jvm.scala.concurrent
    try:
        scala.Await.ready(inner._jo.future(), scala.duration.Duration.apply(REPORT_SECONDS, "s"))
    except Py4JJavaError as error:
        raise StorageUnusable(
            f"Spark has not reported within {REPORT_SECONDS} s how many rows it has written: nothing was stored"
        ) from error
    try:
        found: dict[str, Any] = seen.get
    except Py4JJavaError:  # there are no rows
        return None
    return found
