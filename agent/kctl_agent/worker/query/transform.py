"""The user's transform: stateless, DataFrame -> DataFrame; it leaves each record in its partition and order."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kctl_agent.errors import AgentError
from kctl_agent.process.bootstrap import BootstrapError, loaded
from kctl_agent.process.tracebacks import first_line, place_of
from kctl_agent.spark.session import lost_jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
RECORDS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)

FIXED = ("CANNOT_MODIFY_STATIC_CONFIG", "CANNOT_MODIFY_CONFIG")
NODE = re.compile(r"\W*(\w+)")
MOVING = ("Repartition", "RebalancePartitions", "Sort", "Aggregate", "Join", "Window", "Deduplicate", "Union", "Offset")


class TransformFailed(AgentError, code="transform_failed", retriable=True):
    """The transform raised an exception when it was called; the next query calls it again."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(f"the transform {name} raised {type(error).__name__}: {first_line(error)}{place_of(error)}")


def load_transform(name: str, import_dir: Path) -> Callable[[DataFrame], DataFrame]:
    if not name:
        return lambda frame: frame
    transform: Callable[[DataFrame], DataFrame] = loaded("workers.transform", name, import_dir)
    if not callable(transform):
        raise BootstrapError(f"workers.transform {name!r} is not a function")
    return transform


def call_transform(transform: Callable[[DataFrame], DataFrame], name: str, frame: DataFrame) -> DataFrame:
    try:
        return transform(frame)
    except Exception as error:
        if lost_jvm(error) is not None:
            raise
        if (key := _fixed_by(error)) is None:
            raise TransformFailed(name, error) from error
        raise BootstrapError(
            f"the transform {name} cannot set {key}: Spark fixes it when the driver starts; set it in "
            "[spark.conf], for all workers"
        ) from None


def _fixed_by(error: Exception) -> str | None:
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException) or error.getCondition() not in FIXED:
        return None
    parameters = error.getMessageParameters() or {}
    return str(parameters.get("key", "this configuration")).strip('"')


def check_transform(name: str, frame: DataFrame) -> None:
    if not name:
        return
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise BootstrapError(f"the transform {name} drops {', '.join(missing)}; it must keep {', '.join(COLUMNS)}")
    plan = frame._jdf.queryExecution().analyzed().toString()  # noqa: SLF001 - explain() only prints
    nodes = {node.group(1) for line in plan.splitlines() if (node := NODE.match(line))}
    moved = sorted(node for node in nodes if node.startswith(MOVING))
    if moved:
        raise BootstrapError(
            f"the transform {name} moves records ({', '.join(moved)}); it must be stateless and leave each record "
            "in its partition and order"
        )


def try_transform(transform: Callable[[DataFrame], DataFrame], name: str, *, is_of_batches: bool) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        made = call_transform(transform, name, spark.createDataFrame([], RECORDS))
    except TransformFailed as error:
        raise BootstrapError(str(error)) from error.__cause__
    if not is_of_batches:
        check_transform(name, made)
