"""Rows that a transform has marked: it could not read their messages, which become dead letters.

A transform marks a row by an error in the column `_kctl_error`. All other rows go to the table in one pass, in which
the marked ones are only counted. Where there are any, a second pass makes dead letters of them. A transform that marks
other rows then than it did before would lose messages or store them twice: the two passes are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.storage.base import Binding, StorageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

__all__ = ["ERROR", "MarkedRows", "UnsteadyMarks", "check_marks", "is_marking"]

ERROR = "_kctl_error"
MESSAGE = {"topic": "string", "partition": "int", "offset": "bigint"}
"""The columns by which the message of a row is known, and their types."""
MAX_ERROR = 8192
"""Characters of an error that are kept."""


class UnsteadyMarks(StorageError):
    """A transform marked other rows when it was run again."""

    code = "unsteady_marks"


def is_marking(rows: DataFrame) -> bool:
    return ERROR in rows.columns


def check_marks(name: str, rows: DataFrame) -> None:
    """Raises BootstrapError: what the transform of this name marks cannot be traced to messages."""
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


class MarkedRows:
    """`rows` are what the transform made of a batch; `others`, those that it did not mark, are to be written first."""

    def __init__(self, rows: DataFrame) -> None:
        from pyspark.sql import Observation

        self._rows = rows
        self._first, self._second = Observation(), Observation()
        self.others = _observed(rows, self._first).where(f"{ERROR} is null").drop(ERROR)

    @property
    def count(self) -> int:
        """Of marked rows. Only after `others` are written."""
        return int(self._first.get["count"])

    def messages(self, source: DataFrame, owner: Binding) -> DataFrame:
        """The messages of the marked rows, once each, as they are in `source`."""
        from pyspark.sql import functions as f

        marked = _observed(self._rows, self._second).where(f"{ERROR} is not null")
        errors = marked.groupBy(*MESSAGE).agg(f.substring(f.min(ERROR), 1, MAX_ERROR).alias("error"))
        return source.join(errors, list(MESSAGE)).select(
            f.lit(owner.cluster_id).cast("string").alias("cluster"),
            f.lit(owner.group).alias("group"),
            *MESSAGE,
            "timestamp",
            "timestampType",
            "key",
            "value",
            "headers",
            "error",
            f.current_timestamp().alias("failed_at"),
        )

    def check(self) -> None:
        """Raises UnsteadyMarks. Only after `messages` are written."""
        if self._first.get != self._second.get:
            raise UnsteadyMarks(
                f"the transform marked {self.count} rows of a batch by {ERROR}, and {self._second.get['count']}, or "
                "others, when it was run again: what it marks must follow from the message alone; nothing was stored"
            )


def _observed(rows: DataFrame, seen: Observation) -> DataFrame:
    """How many rows are marked, and a number that other ones would not have."""
    from pyspark.sql import functions as f

    is_marked = f.col(ERROR).isNotNull()
    of_marked: Column = f.when(is_marked, f.xxhash64(*MESSAGE))
    counted: list[Any] = [f.count(of_marked).alias("count"), f.bit_xor(of_marked).alias("which")]
    return rows.observe(seen, *counted)
