"""Parquet files of a batch, with names that separate task attempts.

Spark may run a task again, or twice at a time, and an abandoned attempt may write for any time. The commit protocol of
its streaming file sink gives each file a random name, and the driver the names of one attempt per task: the one whose
rows it counted. No file is renamed.
"""

# ruff: noqa: SLF001 - PySpark has no public way to choose the protocol of one job
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame


def write_committed(rows: DataFrame, uri: str, partition_by: Sequence[str]) -> frozenset[str]:
    """Returns the committed files; observations of `rows` are then complete. Raises OSError, and errors of Spark and
    the user's code."""
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
