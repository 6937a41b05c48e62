"""The entries for a batch's files in a table's log: readers that skip files by their bounds must find every row, and no
value of a message may keep a batch from being stored.

`written_by_spark.parquet` was written by Spark 4.2, with `parquet.block.size` 1024: 200 rows in two row groups, of
    select id as n, if(id = 199, double('NaN'), double(id)) as x,
           timestamp_micros(if(id = 7, 1782000000000000000, 0)) as far,
           timestamp_micros(if(id = 7, -62135596800000000, 0)) as year_1,
           date_add(date'9999-12-31', int(id)) as day, cast(if(id = 7, X'FF', X'61') as string) as text,
           cast(id as decimal(9, 2)) as price
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kctl_agent.storage.lake.delta.files import DataFile, read_files, spark_schema
from kctl_agent.storage.lake.folder import LocalFolder

SPARK = Path(__file__).with_name("written_by_spark.parquet")


@pytest.fixture
def folder(path: Path) -> Path:
    made = path / "kctl-1"
    made.mkdir(parents=True)
    return made


def stats(file: DataFile) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.stats)
    return found


def test_a_column_whose_values_python_does_not_have_or_cannot_order_has_no_bounds(path: Path, folder: Path) -> None:
    shutil.copy(SPARK, folder)

    [file] = read_files(LocalFolder(path), LocalFolder(folder))

    found = stats(file)
    assert '"price":199.00' in file.stats
    assert found["numRecords"] == 200
    assert set(found["minValues"]) == set(found["maxValues"]) == {"n", "year_1", "price"}, "not x, far, day, text"
    assert found["minValues"]["year_1"] == "0001-01-01T00:00:00.000000Z", "four digits"
    assert set(found["nullCount"]) == {"n", "x", "far", "year_1", "day", "text", "price"}


def test_a_file_of_spark_has_the_schema_of_its_rows(path: Path, folder: Path) -> None:
    shutil.copy(SPARK, folder / "part-0.parquet")
    pq.write_table(pa.table({"n": [1]}), folder / "part-1.parquet")

    found = spark_schema(LocalFolder(path), "kctl-1/part-0.parquet")

    assert found is not None
    assert {each["name"]: each["type"] for each in json.loads(found)["fields"]} == {
        "n": "long",
        "x": "double",
        "far": "timestamp",
        "year_1": "timestamp",
        "day": "date",
        "text": "string",
        "price": "decimal(9,2)",
    }
    assert spark_schema(LocalFolder(path), "kctl-1/part-1.parquet") is None


@pytest.mark.parametrize(
    ("text", "bound"), [("a" * 32, "a" * 32), ("a" * 33, "a" * 32 + "\U0010ffff"), ("a" * 32 + "\U0010ffff" * 2, None)]
)
def test_cut_texts_are_below_their_upper_bounds(path: Path, folder: Path, text: str, bound: str | None) -> None:
    pq.write_table(pa.table({"text": [text]}), folder / "part-0.parquet")

    [file] = read_files(LocalFolder(path), LocalFolder(folder))

    assert stats(file)["minValues"]["text"] == "a" * 32
    assert stats(file)["maxValues"].get("text") == bound
    assert bound is None or bound >= text
