"""Transforms that the acceptance tests give to their workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["POISON", "chokes", "drops_offsets", "every_tenth_marked", "marks_at_random", "shuffles", "slow"]

POISON = b"poison"


def slow(frame: DataFrame) -> DataFrame:
    """Holds the batch with a partition's first record, in the executor, until the file is there that
    `KCTL_SLOW_UNTIL` names."""

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if 0 in batch.column("offset").to_pylist():
                while not os.path.exists(os.environ["KCTL_SLOW_UNTIL"]):
                    threading.Event().wait(0.05)
            yield batch

    return frame.mapInArrow(hold, frame.schema)


def drops_offsets(frame: DataFrame) -> DataFrame:
    return frame.drop("offset")


def every_tenth_marked(frame: DataFrame) -> DataFrame:
    """For a table: one message in ten cannot be read."""
    from pyspark.sql.functions import col, when

    return frame.withColumn("_kctl_error", when(col("offset") % 10 == 0, "a tenth"))


def marks_at_random(frame: DataFrame) -> DataFrame:
    """For a table: other rows whenever it is run, half of them. (`rand()` has the same seed in both.)"""
    from pyspark.sql.functions import expr, when

    chance = expr("cast(reflect('java.lang.Math', 'random') as double)")
    return frame.withColumn("_kctl_error", when(chance < 0.5, "by chance"))


def shuffles(frame: DataFrame) -> DataFrame:
    return frame.repartition(2)


def chokes(frame: DataFrame) -> DataFrame:
    """Fails in the executor at a record that asks for it, until the file is there that `KCTL_CHOKES_UNTIL` names."""

    def check(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if POISON in batch.column("value").to_pylist() and not os.path.exists(os.environ["KCTL_CHOKES_UNTIL"]):
                raise ValueError("the price of order 7 is no number")
            yield batch

    return frame.mapInArrow(check, frame.schema)
