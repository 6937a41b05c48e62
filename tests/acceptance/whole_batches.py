"""`python whole_batches.py FOLDER`: has batches put into tables one of whose files somebody removes before the commit,
and dead letters put back whose file goes, with a real Spark and without Kafka; prints what became of them as JSON, by
case."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kctl_agent.errors import StorageError
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.folder import Folder, LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.worker.query import lake_put
from kctl_agent.worker.query.requeue_put import RequeuePut
from tests.acceptance.lone_spark import lone_session
from tests.acceptance.marking_transforms import GROUP, TP, marks, put

write = lake_put.write


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
    """A batch of four messages, three of which are dead letters; the file that is written into this table is removed.
    What the batch is refused with, and what is stored."""

    def losing(rows: DataFrame, folder: Folder, partition_by: Sequence[str] = ()) -> int:
        count = write(rows, folder, partition_by)
        if Path(folder.uri).parent == loser:
            [file] = Path(folder.uri).glob("*.parquet")
            file.unlink()
        return count

    lake_put.write = losing
    try:
        put(spark, table, marks("xyz"))
    except StorageError as error:
        return [str(error), stored(table)]
    finally:
        lake_put.write = write
    return [None, stored(table)]


def put_back(spark: SparkSession, table: Path) -> list[Any]:
    """While the dead letters are put back their file goes. What it is refused with, and what is stored."""
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


def main(folder: Path) -> None:
    spark = lone_session(folder, {"spark.sql.files.ignoreMissingFiles": "true"})
    rows, dead_letters = folder / "rows", folder / "dead"
    found = {
        "rows": put_losing(spark, rows, rows),
        "dead_letters": put_losing(spark, dead_letters, folder / "dead_dead_letters"),
        "put_back": put_back(spark, folder / "back"),
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
