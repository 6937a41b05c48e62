"""Requeues dead letters of a table with a real Spark, for marking_transforms.py."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, when

from kctl_agent.storage.chunk import Binding, StoredOffset
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.worker.query.lake_put import COLUMNS, write
from kctl_agent.worker.query.requeue_put import SCHEMA, RequeuePut

GROUP = "it's a group"
MANY = 3000
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def numbers(frame: DataFrame) -> DataFrame:
    is_number = col("value").cast("string").rlike("^[0-9]+$")
    return frame.withColumn("_kctl_error", when(~is_number, "no number"))


def dead_letter(offset: int, value: bytes, **more: Any) -> dict[str, Any]:
    return {
        "cluster": "c",
        "group": GROUP,
        "topic": "t",
        "partition": 0,
        "offset": offset,
        "timestamp": AT,
        "timestampType": 0,
        "key": None,
        "value": value,
        "headers": None,
        "failed_at": AT,
        "tries": 1,
        **more,
    }


def store(spark: SparkSession, lake: LakeStorage, table: DeadLetterTable, rows: list[dict[str, Any]]) -> None:
    frame = spark.createDataFrame(rows, SCHEMA).selectExpr("*", "'an error' as error")
    batch = lake.begin([])
    dead_letters = table.begin(batch, frame.schema.json(), table.earlier_try(batch))
    write(frame, dead_letters.folder)
    dead_letters.commit()


def requeued_rows(spark: SparkSession, folder: Path) -> dict[str, Any]:
    lake = LakeStorage(LocalFolder(folder / "my orders {a}"))
    lake.prepare()
    lake.fit(spark.createDataFrame([], SCHEMA).select(*COLUMNS).schema.json())
    put = RequeuePut(lake, numbers, "numbers", GROUP, "worker-0")  # before their cluster is known
    lake.bind(Binding(GROUP, "c"))
    lake.init_offsets([StoredOffset("t", 0, None, 0)])
    table = DeadLetterTable(lake, GROUP)
    headers = [("h", b"\xff"), ("h", None)]
    store(spark, lake, table, [dead_letter(1, b"1", key=b"\xfe", headers=headers), dead_letter(2, b"x")])
    store(spark, lake, table, [dead_letter(at, b"%d" % at) for at in (3, *range(10, 10 + MANY))])
    store(spark, lake, table, [dead_letter(3, b"bad", failed_at=AT + timedelta(seconds=1))])
    table.requeue_dead()

    reported = [str(put.put_next(spark)) for _ in range(2)]

    rows = DeltaTable(lake.folder.uri).to_pyarrow_table().sort_by("offset")
    first = {name: repr(value) for name, value in rows.slice(0, 1).to_pylist()[0].items()}
    kept = [(each.offset, repr(each.messages()[0].value), each.tries, each.error) for each in table.dead()]
    return {"reported": reported, "first": first, "offsets": rows["offset"].to_pylist(), "kept": kept}
