"""Batches that Spark puts into tables, without Kafka, with transforms that mark messages.

Each case returns offsets of rows and dead letters, or the error. The last cases remove a written file, or a file of
requeued dead letters, before the commit.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples import items
from kctl_agent.errors import StorageError
from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.chunk import Binding, StoredOffset
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta.files import Written
from kctl_agent.storage.lake.folder import Folder, LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.worker.query import lake_put
from kctl_agent.worker.query.lake_put import LakePut
from kctl_agent.worker.query.marked_rows import ERROR
from kctl_agent.worker.query.put import BatchRange
from kctl_agent.worker.query.requeue_put import RequeuePut
from kctl_agent.worker.query.transform import call_transform, check_transform
from tests.acceptance import transforms
from tests.acceptance.requeued_rows import requeued_rows

write = lake_put.write
TP, GROUP = ("t", 0), Binding("group", "cluster")
FAR = 1_782_000_000_000_000_000  # the year 58000, from producers that take milliseconds for microseconds
RECORDS = (  # four messages: bytes that are not UTF-8, x, y and z
    "'t' as topic", "0 as partition", "id as offset", f"timestamp_micros({FAR} + id) as timestamp",
    "0 as timestampType", "cast(null as binary) as key", "get(array(X'FF', X'78', X'79', X'7A'), int(id)) as value",
    "cast(null as array<struct<key: string, value: binary>>) as headers",
)  # fmt: skip
Transform = Callable[[DataFrame], DataFrame]


def marks(values: str, offset: str = "offset", error: str = "'no'") -> Transform:
    """Marks messages with one of these values. `offset` and `error` are expressions."""

    def transform(frame: DataFrame) -> DataFrame:
        is_bad = f.instr(f.lit(values), f.col("value").cast("string")) > 0
        return frame.withColumn(ERROR, f.when(is_bad, f.expr(error))).withColumn("offset", f.expr(offset))

    return transform


def example(frame: DataFrame) -> DataFrame:
    """Applies the example of examples/ for a table, which makes a row of each item."""
    values = """array('{"id": 7, "country": "a b/c", "items": ["x", "y"]}', '{"id": 8}', 'no JSON', null)"""
    return items.parsed(frame.withColumn("value", f.expr(f"cast(get({values}, int(offset)) as binary)")))


def named(column: str, *countries: str) -> Transform:
    return lambda frame: frame.withColumn(column, f.expr(f"array({', '.join(countries)})[int(offset)]"))


def put(
    spark: SparkSession,
    table: Path,
    transform: Transform,
    name: str = "items:parsed",
    end: int = 4,
    partition_by: tuple[str, ...] = (),
) -> None:
    frame = spark.range(end).selectExpr(*RECORDS)
    storage = LakeStorage(LocalFolder(table), partition_by=partition_by)
    storage.prepare()
    lake = LakePut(storage, transform, name)
    lake.check(frame)
    storage.bind(GROUP)
    if not storage.stored_offsets([TP]):
        storage.init_offsets([StoredOffset(*TP, None, 0)])
    lake.put(frame, {TP: BatchRange(0, end, 1, None)}, "token")


def offsets(table: Path) -> dict[str, Any]:
    storage = LakeStorage(LocalFolder(table))
    storage.bind(GROUP)
    dead = [[each.offset, each.error] for each in DeadLetterTable(storage, GROUP.group).dead()]
    return {"rows": DeltaTable(table).to_pyarrow_table(columns=["offset"])["offset"].to_pylist(), "dead": dead}


def tried_again(spark: SparkSession, table: Path) -> None:
    """Runs a batch again with another transform. The first try stores its dead letters, but its rows are rejected
    because the table was changed meanwhile."""

    def first(frame: DataFrame) -> DataFrame:
        if frame.count():  # not the session that checks it
            empty.append(DeltaTable(table).to_pyarrow_table())
            DeltaTable(table).alter.add_columns([Field("strict", PrimitiveType("string"), nullable=False)])
        return marks("xy")(frame)

    empty: list[pa.Table] = []
    with suppress(TableRefused):
        put(spark, table, first)
    write_deltalake(table, empty[0], mode="overwrite", schema_mode="overwrite")
    put(spark, table, marks("yz"))


def partitioned(*countries: str, by: str = "country") -> Callable[[SparkSession, Path], None]:
    return lambda spark, table: put(spark, table, named(by, *countries), end=len(countries), partition_by=(by,))


def attempt(spark: SparkSession, table: Path, run: Callable[[SparkSession, Path], None]) -> dict[str, Any]:
    try:
        run(spark, table)
    except (StorageError, BootstrapError) as error:
        return {"error": str(error), "left": [each.name for each in table.glob("kctl-*")]}
    return offsets(table)


def stored(table: Path) -> dict[str, Any]:
    storage = LakeStorage(LocalFolder(table))
    storage.bind(GROUP)
    dead = DeadLetterTable(storage, GROUP.group)
    return {
        "rows": DeltaTable(table).to_pyarrow_table().num_rows,
        "stored": storage.stored_offsets([TP])[TP].next,
        "dead": dead.count_dead() + dead.count_requeued(),
    }


def put_losing(spark: SparkSession, table: Path, loser: Path) -> list[Any]:
    """Puts four messages, three of them dead letters, and removes the file written into the table `loser`. Returns the
    error and what is stored."""

    def losing(rows: DataFrame, folder: Folder, partition_by: Sequence[str] = ()) -> Written:
        written = write(rows, folder, partition_by)
        if Path(folder.uri).parent == loser:
            [file] = Path(folder.uri).glob("*.parquet")
            file.unlink()
        return written

    lake_put.write = losing
    try:
        put(spark, table, marks("xyz"))
    except StorageError as error:
        return [str(error), stored(table)]
    finally:
        lake_put.write = write
    return [None, stored(table)]


def put_back_losing(spark: SparkSession, table: Path) -> list[Any]:
    """Removes the file of dead letters while they are requeued. Returns the error and what is stored."""
    put(spark, table, marks("xyz"))
    storage = LakeStorage(LocalFolder(table))
    storage.bind(GROUP)
    DeadLetterTable(storage, GROUP.group).requeue_dead()
    moved: list[tuple[Path, Path]] = []

    def removing(frame: DataFrame) -> DataFrame:
        for number, name in enumerate(frame.inputFiles()):
            moved.append((Path(name.removeprefix("file://")), table.with_name(f"gone-{number}")))
            moved[-1][0].rename(moved[-1][1])
        return frame

    try:
        RequeuePut(storage, removing, "items:removing", GROUP.group, "worker-0").put_next(spark)
        why = None
    except (Py4JJavaError, PySparkException, StorageError) as error:
        why = type(error).__name__
    for file, at in moved:
        at.rename(file)
    return [why, stored(table)]


def why_refused(transform: Transform, frame: DataFrame) -> str | None:
    try:
        check_transform(transform.__name__, call_transform(transform, transform.__name__, frame))
    except BootstrapError as error:
        return str(error)
    return None


def locales(spark: SparkSession) -> list[str | None]:
    jvm = spark._jvm.System.getProperty("sun.jnu.encoding")
    executors: str | None = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get("LC_ALL")).first()
    return [jvm, os.environ["LC_ALL"], executors]


def found(spark: SparkSession, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    cases: dict[str, Callable[[SparkSession, Path], None]] = {
        "marked": lambda spark, table: put(spark, table, marks("xz", error="concat('no ', string(X'FF'))")),
        "every": lambda spark, table: put(spark, table, lambda frame: frame.withColumn(ERROR, f.lit("no"))),
        "none": lambda spark, table: put(spark, table, lambda frame: frame, name=""),
        "dropped": lambda spark, table: put(spark, table, lambda frame: frame.where("false")),
        "moved": lambda spark, table: put(spark, table, marks("xz", offset="offset + 1000")),
        "lost": lambda spark, table: put(spark, table, marks("xz", offset="if(value = X'78', null, offset)")),
        "example": lambda spark, table: put(spark, table, example, partition_by=("country",)),
        "tried_again": tried_again,
        "partitions": partitioned("repeat('\u00e9', 123)", "repeat(':', 82)", "null", "repeat('c', 247)"),
        "unfit": partitioned(
            *("string(X'610062')", "string(X'FF')", "string(X'FE')", "null", "'__HIVE_DEFAULT_PARTITION__'"),
            by="coun`try",
        ),
        "long": partitioned("repeat('c', 248)"),
        "long_escaped": partitioned("repeat('%', 83)"),
    }
    outcomes: dict[str, Any] = {name: attempt(spark, folder / f"m\u00fcll {name}", run) for name, run in cases.items()}
    unfit = {
        row["offset"]: row["coun`try"]
        for row in DeltaTable(folder / "m\u00fcll unfit").to_pyarrow_table(columns=["offset", "coun`try"]).to_pylist()
    }
    outcomes["unfit"] = [unfit[offset] for offset in sorted(unfit)]
    records = spark.range(4).selectExpr(*RECORDS)
    bad = transforms.shuffles, transforms.drops_offsets, transforms.sets_what_is_static
    outcomes["refused"] = [why_refused(each, records) for each in bad]
    outcomes["locales"] = locales(spark)
    outcomes["requeued"] = requeued_rows(spark, folder)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    rows, dead_letters = folder / "lost_rows", folder / "lost_dead"
    outcomes["lost_rows"] = put_losing(spark, rows, rows)
    outcomes["lost_dead_letters"] = put_losing(spark, dead_letters, folder / "lost_dead_dead_letters")
    outcomes["lost_put_back"] = put_back_losing(spark, folder / "lost_back")
    spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    return outcomes
