"""Transforms for the workers of acceptance tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POISON = b"poison"


def drops_offsets(frame: DataFrame) -> DataFrame:
    return frame.drop("offset")


def sets_what_is_static(frame: DataFrame) -> DataFrame:
    frame.sparkSession.conf.set("spark.sql.warehouse.dir", "/elsewhere")
    return frame


def every_tenth_marked(frame: DataFrame) -> DataFrame:
    from pyspark.sql.functions import col, when

    return frame.withColumn("_kctl_error", when(col("offset") % 10 == 0, "a tenth"))


def typed_by_offset(frame: DataFrame) -> DataFrame:
    """For a table. Columns have types with and without bounds in files, and all values are made of the offset. One
    message in ten is unreadable."""
    return frame.selectExpr(
        "topic",
        "partition",
        "offset",
        "timestamp",
        "element_at(array('a b/c', '50%', 'ü=x', cast(null as string)), cast(offset % 4 as int) + 1) as country",
        "timestamp_micros(offset * 1000001 - 500000000) as at",
        "date_add(date'1969-12-01', cast(offset / 10 as int)) as day",
        "offset / 7 as price",
        "cast(offset as float) as weight",
        "cast(offset / 100 as decimal(12, 2)) as amount",
        "offset % 2 = 0 as is_even",
        "concat(repeat('x', 30), lpad(offset, 9, '0')) as name",
        "cast(offset % 100 as byte) as small",
        "array(cast(offset as string), null) as tags",
        "named_struct('id', offset, 'key', key) as origin",
        "value",
        "if(offset % 10 = 0, 'a tenth', null) as _kctl_error",
    )


def shuffles(frame: DataFrame) -> DataFrame:
    return frame.repartition(2)


def chokes(frame: DataFrame) -> DataFrame:
    def check(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if POISON in batch.column("value").to_pylist():
                raise ValueError("the price of order 7 is no number")
            yield batch

    return frame.mapInArrow(check, frame.schema)
