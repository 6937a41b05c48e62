"""Dead letters of a table. They come from rows whose values kctl cannot decode, and from rows that a transform marked
by an error in the column `_kctl_error`.

The first pass counts the marked rows and writes all other rows to the table. A second pass runs the transform again and
makes dead letters of the marked rows. If the two passes mark different rows, kctl rejects the batch, because messages
would be lost or stored twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f

from kctl_agent.errors import StorageError
from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.lake.dead_letters.selection import NUMBER, READING, TRIES
from kctl_agent.worker.query.committed_files import observed

ERROR = "_kctl_error"
KAFKA = "_kafka"  # the column with Kafka's columns, if values are decoded to columns
PREFIX = "_kctl_prefix"
"""The column with the prefix of a value whose schema is not known (`schemas.framing`)."""
MESSAGE = {"topic": "string", "partition": "int", "offset": "bigint"}


class UnsteadyMarks(StorageError, code="unsteady_marks"):
    """The transform marked different rows when a batch ran again, so the batch was not stored. Marks must depend only
    on the message, not on a clock, a random number or a server."""


class UntracedMarks(StorageError, code="untraced_marks"):
    """The transform marked rows whose topic, partition and offset are not in the batch, so the batch was not stored.
    Keep these columns unchanged (docs/transform.md)."""


def is_marking(rows: DataFrame) -> bool:
    return ERROR in rows.columns


def check_marks(name: str, rows: DataFrame, place: str = "") -> None:
    """Checks the output columns of a transform that marks rows. Raises BootstrapError."""
    if place and KAFKA not in rows.columns:
        raise BootstrapError(
            f"the transform {name} marks rows by {ERROR} but drops {KAFKA}, which identifies their messages"
        )
    types = dict(rows.select(ERROR, *(f"{place}{column}" for column in MESSAGE)).dtypes if place else rows.dtypes)
    for column, type_ in {ERROR: "string", **MESSAGE}.items():
        if column not in types:
            raise BootstrapError(
                f"the transform {name} marks rows by {ERROR} and drops {column}: it must keep {', '.join(MESSAGE)}, "
                "which identify their messages"
            )
        if types[column] != type_:
            raise BootstrapError(
                f"the transform {name} marks rows by {ERROR}, so its column {column} must be {type_}, and it is "
                f"{types[column]}"
            )
    if not any(field.nullable for field in rows.schema.fields if field.name == ERROR):
        raise BootstrapError(
            f"the transform {name} marks every row: its column {ERROR} is never null, but must be null in valid rows "
            "(`when(…, error)` without `otherwise`)"
        )


class Marked(ABC):
    """The marked rows of a batch. First write the unmarked rows, `others`. Then use the rest of this class."""

    def __init__(self, rows: DataFrame, counts: Sequence[Column]) -> None:
        self._rows = rows
        self._first = Observation()
        self._counts = counts
        self.others = rows.observe(self._first, *self._counts).where(f"{ERROR} is null").drop(ERROR, PREFIX)

    @cached_property
    def counted(self) -> dict[str, Any]:
        """The result of each aggregate in `counts`, by name. `count` is the number of marked rows."""
        return observed(self._first) or self._rows.agg(*self._counts).collect()[0].asDict()

    @property
    def count(self) -> int:
        return int(self.counted["count"])

    @abstractmethod
    def messages(self, source: DataFrame, *of_batch: Column) -> DataFrame:
        """Returns one dead letter for each message that has marked rows. Key, value and headers come from `source`.
        `of_batch` are the columns `cluster`, `group`, `tries` and `reading`."""

    def check(self) -> None:  # noqa: B027 - only a transform's marks may differ
        """Checks that both passes marked the same rows. Write `messages` first. Raises UnsteadyMarks, UntracedMarks."""


class UndecodedRows(Marked):
    """The rows from `TypedRows.decoded`, marked if the value could not be decoded."""

    def __init__(self, rows: DataFrame) -> None:
        super().__init__(rows, [f.count(ERROR).alias("count"), f.count(PREFIX).alias("unknown")])

    def messages(self, source: DataFrame, *of_batch: Column) -> DataFrame:
        marked = self._rows.where(f"{ERROR} is not null").select(f"{KAFKA}.*", f.col(ERROR).alias("error"))
        if not set(source.columns) <= set(marked.columns):  # a dead letter, which has more than Kafka's columns
            marked = source.join(marked.select(*MESSAGE, "error"), list(MESSAGE))
        return _dead_letters(marked, *of_batch)


class MarkedRows(Marked):
    def __init__(self, rows: DataFrame, place: str = "") -> None:
        super().__init__(rows, _counts(place))
        self._place = place
        self._second, self._marked, self._found = Observation(), Observation(), Observation()

    def messages(self, source: DataFrame, *of_batch: Column) -> DataFrame:
        marked = self._rows.observe(self._second, *self._counts).where(f"{ERROR} is not null")
        marked = marked.select(ERROR, *(f.col(f"{self._place}{name}").alias(name) for name in MESSAGE))
        text = f.substring(f.make_valid_utf8(f.min(ERROR)), 1, 8192)  # it may quote the message
        errors = marked.groupBy(*MESSAGE).agg(text.alias("error")).observe(self._marked, f.count("*").alias("count"))
        messages = source.join(errors, list(MESSAGE)).observe(self._found, f.count("*").alias("count"))
        return _dead_letters(messages, *of_batch)

    def check(self) -> None:
        count, again = self.count, observed(self._second)
        if again != self.counted:
            raise UnsteadyMarks(
                f"the transform marked {count} rows of a batch by {ERROR}, and {again['count'] if again else 0}, or "
                "others, when it ran again: its marks must depend on the message alone; nothing was stored"
            )
        marked, found = (each["count"] if each else 0 for each in map(observed, (self._marked, self._found)))
        if found < marked:
            raise UntracedMarks(
                f"the transform marked rows of {number_of(marked, 'message')} by {ERROR}, but {marked - found} of "
                f"them are not in the batch: marked rows must keep {', '.join(MESSAGE)} unchanged; nothing was stored"
            )


def all_messages(marked: Sequence[Marked], source: DataFrame, *of_batch: Column) -> DataFrame:
    return reduce(DataFrame.union, (each.messages(source, *of_batch) for each in marked))


def _dead_letters(messages: DataFrame, cluster: Column, group: Column, tries: Column, reading: Column) -> DataFrame:
    return messages.select(
        cluster.cast("string").alias("cluster"),
        group.alias("group"),
        *(*MESSAGE, "timestamp", "timestampType", "key", "value", "headers", "error"),
        _now().alias("failed_at"),
        tries.cast("int").alias(TRIES),
        f.lit(None).cast("bigint").alias(NUMBER),
        reading.cast("string").alias(READING),
    )


def _now() -> Column:
    # For a constant, Spark would compile the query's generated code again for each batch.
    return f.concat(f.lit(datetime.now(UTC).isoformat()), f.substring("topic", 1, 0)).cast("timestamp")


def _counts(place: str) -> list[Column]:
    of_marked: Column = f.when(f.col(ERROR).isNotNull(), f.xxhash64(*(f"{place}{name}" for name in MESSAGE)))
    return [f.count(of_marked).alias("count"), f.bit_xor(of_marked).alias("which")]
