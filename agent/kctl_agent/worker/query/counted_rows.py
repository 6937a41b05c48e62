"""Spark's count of the rows it writes, to compare with the files found: a file system, a locale or a listing may hide
files."""

# ruff: noqa: SLF001 - PySpark waits for an observation without end
from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from kctl_agent.storage.base import StorageUnusable

REPORT_SECONDS = 60
"""The longest wait for Spark's report of a count: an overloaded listener bus drops events."""


class CountedRows:
    def __init__(self, rows: DataFrame) -> None:
        self._seen = Observation()
        self.rows = rows.observe(self._seen, f.count("*").alias("count"))

    @property
    def count(self) -> int:
        """Call it only after `rows` were used. Raises StorageUnusable if Spark does not report."""
        found = observed(self._seen)
        return int(found["count"]) if found else 0


def observed(seen: Observation) -> dict[str, Any] | None:
    """Returns Spark's observation; None if Spark knew without running anything that there are no rows (`toPyRow` then
    fails by an assertion). Raises StorageUnusable without a report."""
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
    except Py4JJavaError:
        return None
    return found
