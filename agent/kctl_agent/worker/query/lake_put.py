"""The driver's side of a put into a table. Spark's Parquet writer writes the table files in the executors."""

import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from kctl_agent.message import Message
from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.base import RowRefused, StorageUnusable, TableRefused
from kctl_agent.storage.chunk import Advance, TopicPartition
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable, EarlierTry
from kctl_agent.storage.lake.delta.files import NULL_PARTITION, Written
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.lake.table_storage import LakeBatch
from kctl_agent.worker.query.batch_put import BatchPut, PutDone, in_few_tasks
from kctl_agent.worker.query.committed_files import CountedRows, write_committed
from kctl_agent.worker.query.marked_rows import (
    ERROR,
    KAFKA,
    MESSAGE,
    Marked,
    MarkedRows,
    UndecodedRows,
    all_messages,
    check_marks,
    is_marking,
)
from kctl_agent.worker.query.put import BatchRange
from kctl_agent.worker.query.typed_rows import TypedRows
from kctl_agent.worker.query.unreadable_records import is_readable

log = logging.getLogger(__name__)

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
HEADERS = "array<struct<key: string, value: binary>>"
NAME_BYTES = 255  # the limit of a name on every Linux file system
FILE_RECORDS = 25_000  # a smaller batch is one file, unless the table is partitioned
ESCAPED = re.compile(r"[\x01-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
"""Spark writes these as `%XX` in folder names (`ExternalCatalogUtils.escapePathName`)."""
TOO_LONG = re.compile(r"a row of the batch has \d+ bytes in .*?; nothing was stored")


class LakePut(BatchPut):
    """Puts a batch into a table, and makes dead letters of marked rows."""

    def __init__(
        self,
        storage: LakeStorage,
        transform: Callable[[DataFrame], DataFrame],
        name: str,
        typed: TypedRows | None = None,
    ) -> None:
        super().__init__(transform, name)
        self._storage = storage
        self._typed = typed
        self._schema: str | None = None
        self._columns: StructType | None = None
        """The columns of decoded rows that the table has; None: all."""
        self._fenced: Mapping[TopicPartition, int | None] | None = None

    def check(self, source: DataFrame) -> None:
        check_file_names(source.sparkSession._jvm.System.getProperty("sun.jnu.encoding"), sys.getfilesystemencoding())  # noqa: SLF001
        empty = source.sparkSession.createDataFrame([], source.schema)
        try:
            if self._typed is not None:
                self._typed.begin()
            made = self.transformed(empty)
            if is_marking(made):
                check_marks(self.name, made, self._place)
                made = made.drop(ERROR)
            self._fit(made)
        except TableRefused as error:
            raise BootstrapError(str(error)) from error

    def put(self, frame: DataFrame, ranges: Mapping[tuple[str, int], BatchRange], token: str) -> PutDone:  # noqa: ARG002
        return self._put(in_few_tasks(frame, ranges, FILE_RECORDS), ranges, self.write_rows)

    def give_up(
        self, session: SparkSession, messages: Sequence[Message], planned: BatchRange, errors: Sequence[str]
    ) -> None:
        def mark(source: DataFrame, folder: Folder) -> tuple[Written, Sequence[Marked]]:
            folder.make()
            marked = MarkedRows(source)
            marked.others.write.format("noop").mode("overwrite").save()
            return Written(), [marked] if marked.count else []

        self._put(records(session, messages, errors), {(messages[0].topic, messages[0].partition): planned}, mark)

    def _put(
        self,
        frame: DataFrame,
        ranges: Mapping[tuple[str, int], BatchRange],
        write_rows: Callable[[DataFrame, Folder], tuple[Written, Sequence[Marked]]],
    ) -> PutDone:
        batch = self._storage.begin([Advance(*tp, each.version, each.start, each.end) for tp, each in ranges.items()])
        try:
            below = {tp: at for tp, at in batch.below.items() if at > ranges[tp].start}
            earlier = self._dead_letters.earlier_try(batch)
            source = _without(_not_stored(frame, below), earlier.messages)
            rows, marked = write_rows(source, batch.folder)
            if marked:
                self._give_up(marked, source, batch, earlier)
                self._fenced = batch.claims
            elif self._fenced != batch.claims and self._dead_letters.fence(batch, earlier):
                self._fenced = batch.claims
        except BaseException:
            batch.discard()
            raise
        try:
            files = batch.commit(rows)
        except TableRefused:
            self._schema = None  # the next batch may add columns again
            raise
        return PutDone(sum(file.rows for file in files), {})

    def write_rows(self, messages: DataFrame, folder: Folder) -> tuple[Written, Sequence[Marked]]:
        """Decodes and transforms the messages, and writes the rows as table files. Also returns the marked rows.
        Raises BootstrapError, TableRefused, StorageUnusable, RegistryUnusable, and errors of Spark and user code."""
        typed = self._typed
        while True:
            known_ids = 0 if typed is None else typed.known_ids
            rows, undecoded = self._decoded(messages)
            marked: list[Marked] = [] if undecoded is None else [undecoded]
            if is_marking(rows):
                marked.append(MarkedRows(rows, self._place))
                rows = marked[-1].others
            rows = self._fit(rows)
            written = write(rows, folder, self._storage.partition_by)
            # The files of a batch that is written again are in no commit.
            has_unknown = typed is not None and undecoded is not None and bool(undecoded.counted["unknown"])
            # Another thread may have learnt the schema since these rows were decoded.
            if typed is None or not has_unknown or not (typed.learn(messages) or typed.known_ids > known_ids):
                return written, [each for each in marked if each.count]

    @property
    def _place(self) -> str:
        return "" if self._typed is None else f"{KAFKA}."

    @cached_property
    def _dead_letters(self) -> DeadLetterTable:
        return DeadLetterTable(self._storage, self._storage.owner.group)

    def _give_up(self, marked: Sequence[Marked], source: DataFrame, batch: LakeBatch, earlier: EarlierTry) -> None:
        owner, table = self._storage.owner, self._dead_letters
        of_batch = f.lit(owner.cluster_id), f.lit(owner.group), f.lit(1), _readings(table, batch)
        messages = all_messages(marked, source, *of_batch)
        dead_letters = table.begin(batch, messages.schema.json(), earlier)
        try:
            written = write(messages, dead_letters.folder)
            for each in marked:
                each.check()
        except BaseException:
            dead_letters.discard()
            raise
        dead_letters.commit(written)
        log.warning("%s became dead letters: %s", number_of(written.rows, "message"), table.identity)

    def transformed(self, frame: DataFrame) -> DataFrame:
        return self._decoded(frame)[0]

    def _decoded(self, messages: DataFrame) -> tuple[DataFrame, UndecodedRows | None]:
        rows = messages.select(*COLUMNS)
        undecoded = None if self._typed is None else UndecodedRows(self._typed.decoded(rows))
        made = super().transformed(rows if undecoded is None else undecoded.others)
        if not isinstance(made, DataFrame) or made.isStreaming:
            kind = "a stream" if isinstance(made, DataFrame) else type(made).__name__
            raise BootstrapError(
                f"the transform {self.name} returns {kind}; with storage.mode lake it gets the rows of one batch and "
                "must return a DataFrame made of them, without state over batches"
            )
        return made, undecoded

    def _fit(self, rows: DataFrame) -> DataFrame:
        schema = rows.schema.json()
        if schema != self._schema:
            if self._typed is None:
                self._storage.fit(schema)
            else:
                self._columns = self._typed.fit(self._storage, schema)
            self._schema = schema
        return rows if self._columns is None else rows.to(self._columns)


def records(session: SparkSession, messages: Sequence[Message], errors: Sequence[str]) -> DataFrame:
    """Makes rows of messages, as Spark's Kafka source does, and adds the errors. A timestamp that Spark cannot
    represent becomes -1, Kafka's value for a missing timestamp."""
    rows = [
        (m.topic, m.partition, m.offset, m.timestamp if is_readable(m.timestamp) else -1, m.key, m.value, m.headers, e)
        for m, e in zip(messages, errors, strict=True)
    ]
    columns = f"topic string, partition int, offset long, ms long, key binary, value binary, headers {HEADERS}"
    types = {"timestamp": f.expr("timestamp_millis(ms)"), "timestampType": f.expr("if(ms = -1, -1, 0)")}
    return session.createDataFrame(rows, f"{columns}, {ERROR} string").withColumns(types).select(*COLUMNS, ERROR)


def check_file_names(java: str, python: str) -> None:
    """Checks that Spark's driver and this process encode file names in UTF-8. Raises BootstrapError."""
    for whose, encoding in ("Spark's driver", java), ("Python", python):
        if encoding.upper() not in ("UTF-8", "UTF8"):
            raise BootstrapError(
                f"{whose} names files by {encoding}, and those of a table need UTF-8: set LC_ALL=C.UTF-8, or another "
                "locale of UTF-8 that `locale -a` shows, where it is started"
            )


def _readings(table: DeadLetterTable, batch: LakeBatch) -> Column:
    partitions: dict[tuple[str, str], list[int]] = {}
    for topic, partition in batch.moves:
        partitions.setdefault((topic, table.reading(batch, (topic, partition))), []).append(partition)
    return f.coalesce(
        *(
            f.when((f.col("topic") == topic) & f.col("partition").isin(numbers), f.lit(reading))
            for (topic, reading), numbers in partitions.items()
        )
    )


def _not_stored(rows: DataFrame, below: Mapping[TopicPartition, int]) -> DataFrame:
    if not below:
        return rows
    # Kafka's topic names need no quoting in SQL.
    return rows.where(
        " and ".join(
            f"not (topic = '{topic}' and partition = {partition} and offset < {at})"
            for (topic, partition), at in sorted(below.items())
        )
    )


def _without(rows: DataFrame, messages: Sequence[tuple[str, int, int]]) -> DataFrame:
    if not messages:
        return rows
    types = ", ".join(f"{name} {type_}" for name, type_ in MESSAGE.items())
    return rows.join(rows.sparkSession.createDataFrame(messages, types), list(MESSAGE), "left_anti")


def write(rows: DataFrame, folder: Folder, partition_by: Sequence[str] = ()) -> Written:
    try:
        folder.make()
    except OSError as error:
        raise StorageUnusable(f"{folder} cannot be made: {error.strerror}") from error
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    counted = CountedRows(_with_folder_names(rows, partition_by))
    try:
        files = write_committed(counted.rows, folder.spark_uri, partition_by)
    except Exception as error:  # Spark wraps a task's error
        if (found := TOO_LONG.search(str(error))) is not None:
            raise RowRefused(found[0]) from error
        raise
    return Written(counted.count, files)


def _with_folder_names(rows: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    types = dict(rows.dtypes)
    for name in partition_by:
        if types.get(name) != "string":
            continue
        text = f.make_valid_utf8(f.col(f"`{name.replace('`', '``')}`"))
        # A folder's name cannot contain NUL, and Hive's text for null means null.
        value = f.nullif(f.regexp_replace(text, "\\x00", "\ufffd"), f.lit(NULL_PARTITION))
        room = NAME_BYTES - len(f"{ESCAPED.sub('%00', name)}=".encode())
        size = f.octet_length(f.regexp_replace(value, ESCAPED.pattern, "%00"))
        begin, end = (
            "a row of the batch has ",
            f" bytes in {name}, by which the table is partitioned, but the name of a folder has room for {room}: "
            "shorten it in the transform, or mark it by _kctl_error; nothing was stored",
        )
        refused = f.raise_error(f.concat(f.lit(begin), size.cast("string"), f.lit(end)))
        is_long = (f.octet_length(value) > room // 3) & (size > room)  # an escaped byte is three
        rows = rows.withColumn(name, f.when(is_long, refused).otherwise(value))
    return rows
