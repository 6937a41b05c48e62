"""Rows that a transform marked as unreadable, by an error in the column `_kctl_error`: they become dead letters.

The first pass writes all other rows to the table and only counts the marked ones; a second pass makes dead letters of
them. Both are compared: a transform that then marks other rows, or changes topic, partition or offset, would lose
messages or store them twice.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from kctl_agent.errors import StorageError
from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.lake.dead_letters.numbered_rows import NUMBER, TRIES
from kctl_agent.storage.lake.dead_letters.selection import READING
from kctl_agent.worker.query.counted_rows import observed

ERROR = "_kctl_error"
MESSAGE = {"topic": "string", "partition": "int", "offset": "bigint"}
MAX_ERROR = 8192


class UnsteadyMarks(StorageError):
    code = "unsteady_marks"


class UntracedMarks(StorageError):
    code = "untraced_marks"


def is_marking(rows: DataFrame) -> bool:
    return ERROR in rows.columns


def check_marks(name: str, rows: DataFrame) -> None:
    types = dict(rows.dtypes)
    for column, type_ in {ERROR: "string", **MESSAGE}.items():
        if column not in types:
            raise BootstrapError(
                f"the transform {name} marks rows by {ERROR} and drops {column}: it must keep "
                f"{', '.join(MESSAGE)}, by which their messages are found"
            )
        if types[column] != type_:
            raise BootstrapError(
                f"the transform {name} marks rows by {ERROR}, so its column {column} must be {type_}, and it is "
                f"{types[column]}"
            )
    if not any(field.nullable for field in rows.schema.fields if field.name == ERROR):
        raise BootstrapError(
            f"the transform {name} marks every row: its column {ERROR} is never null, and must be where a row is well "
            "(`when(…, error)` without `otherwise`)"
        )


class MarkedRows:
    """The marked rows. `others`, the rows without a mark, must be written first."""

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows
        self._first, self._second = Observation(), Observation()
        self._marked, self._found = Observation(), Observation()
        self.others = rows.observe(self._first, *_counts()).where(f"{ERROR} is null").drop(ERROR)
        self._counted: dict[str, Any] | None = None

    @property
    def count(self) -> int:
        """Call it only after `others` are written."""
        if self._counted is None:
            self._counted = observed(self._first) or self._rows.agg(*_counts()).collect()[0].asDict()
        return int(self._counted["count"])

    def messages(self, source: DataFrame, cluster: Column, group: Column, tries: Column, reading: Column) -> DataFrame:
        marked = self._rows.observe(self._second, *_counts()).where(f"{ERROR} is not null")
        text = f.substring(f.make_valid_utf8(f.min(ERROR)), 1, MAX_ERROR)  # it may quote the message
        errors = marked.groupBy(*MESSAGE).agg(text.alias("error")).observe(self._marked, f.count("*").alias("count"))
        messages = source.join(errors, list(MESSAGE)).observe(self._found, f.count("*").alias("count"))
        return messages.select(
            cluster.cast("string").alias("cluster"),
            group.alias("group"),
            *MESSAGE,
            "timestamp",
            "timestampType",
            "key",
            "value",
            "headers",
            "error",
            f.current_timestamp().alias("failed_at"),
            tries.cast("int").alias(TRIES),
            f.lit(None).cast("bigint").alias(NUMBER),
            reading.cast("string").alias(READING),
        )

    def check(self) -> None:
        """Compares the marks with the second run's, after `messages`. Raises UnsteadyMarks, UntracedMarks."""
        count, again = self.count, observed(self._second)
        if again != self._counted:
            raise UnsteadyMarks(
                f"the transform marked {count} rows of a batch by {ERROR}, and {again['count'] if again else 0}, or "
                "others, when it was run again: what it marks must follow from the message alone; nothing was stored"
            )
        marked, found = (each["count"] if each else 0 for each in map(observed, (self._marked, self._found)))
        if found < marked:
            raise UntracedMarks(
                f"the transform marked rows of {number_of(marked, 'message')} by {ERROR}, and {marked - found} of them "
                f"are not in the batch: marked rows must keep {', '.join(MESSAGE)} as they were; nothing was stored"
            )


def _counts() -> list[Column]:
    of_marked: Column = f.when(f.col(ERROR).isNotNull(), f.xxhash64(*MESSAGE))
    return [f.count(of_marked).alias("count"), f.bit_xor(of_marked).alias("which")]
