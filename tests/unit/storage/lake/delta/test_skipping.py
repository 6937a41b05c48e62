"""A reader that uses statistics, in the log or in a footer, finds the same rows as without them, also after a
compaction. No value of a message may keep a batch from being stored.

`written_by_spark.parquet` was written by Spark 4.2, with `parquet.block.size` 1024: 200 rows in two row groups, of
    select id as n, if(id = 199, double('NaN'), double(id)) as x,
           timestamp_micros(if(id = 7, 1782000000000000000, 0)) as far,
           timestamp_micros(if(id = 7, -62135596800000000, 0)) as year_1,
           date_add(date'9999-12-31', int(id)) as day, cast(if(id = 7, X'FF', X'61') as string) as text,
           cast(id as decimal(9, 2)) as price
"""

import json
import shutil
import tempfile
from decimal import Decimal
from math import isnan, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kctl_agent.storage.lake.delta.files import is_exact, read_files, spark_schema
from kctl_agent.storage.lake.delta.log import actions, write_entry
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.maintenance.compaction import Compaction
from tests.skipping import HIDDEN, HIDING, PLACES, Predicate, Rows, has_bounds, predicates, rows_of, stored, stored_rows
from tests.table_conformance import compact


class Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._table = DeltaTable(path)
        self.files: dict[str, Any] = {}
        for version in range(self._table.version() + 1):
            for action in actions(LocalFolder(path), version):
                if (add := action.get("add")) is not None:
                    self.files[add["path"]] = json.loads(add.get("stats", "null"), parse_float=Decimal)
                elif "remove" in action:
                    self.files.pop(action["remove"]["path"], None)

    def found(self, predicate: Predicate) -> dict[str, list[int]]:
        by_footers = self._are_exact(list(self.files))
        found = {"delta-rs": self.by_delta_rs(predicate, by_footers=by_footers)}
        # Without bounds in the log, this dataset omits rows of any table, also of Spark's. With bounds, `x < nan` is
        # true for it, which adds rows.
        is_nan = isinstance(predicate.value, float) and isnan(predicate.value)
        if not is_nan and all(stats is None or has_bounds(stats, predicate.place) for stats in self.files.values()):
            dataset = self._table.to_pyarrow_dataset()
            found["delta-rs' dataset"] = dataset.to_table(["id"], predicate.expression())["id"].to_pylist()
        return {engine: sorted(ids) for engine, ids in found.items()}

    def by_delta_rs(self, predicate: Predicate, *, by_footers: bool = True) -> list[int]:
        """Hides NaN from `x > 1` if pyarrow's bounds are in a footer."""
        query = QueryBuilder().register("t", self._table)
        query.execute(f"set datafusion.execution.parquet.pruning = {by_footers}".lower()).read_all()
        sql = f"select id from t where {predicate.sql()}"
        found: list[int] = pa.table(query.execute(sql).read_all())["id"].to_pylist()
        return found

    def _are_exact(self, names: list[str]) -> bool:
        return all(is_exact(pq.read_metadata(self._path / name)) for name in names)


def without_statistics(path: Path, rows: pa.Table) -> Reader:
    stored(path, [])
    pq.write_table(rows, path / "part-0.parquet", write_statistics=False)
    add = {
        "path": "part-0.parquet",
        "partitionValues": {},
        "size": (path / "part-0.parquet").stat().st_size,
        "modificationTime": 0,
        "dataChange": True,
    }
    assert write_entry(LocalFolder(path), DeltaTable(path).version() + 1, [{"add": add}])
    return Reader(path)


def assert_nothing_is_hidden(table: Reader, bare: Reader, predicate: Predicate) -> None:
    found, there = table.found(predicate), bare.found(predicate)
    assert found == {engine: there[engine] for engine in found}, predicate


@st.composite
def tables_and_predicates(draw: st.DrawFn) -> tuple[list[tuple[Rows, bool]], list[Predicate]]:
    files = draw(st.lists(st.tuples(rows_of(), st.booleans()), min_size=2, max_size=4))
    return files, draw(st.lists(predicates([rows for rows, _ in files]), min_size=12, max_size=12))


@pytest.mark.shows("queries with statistics find the same rows, for all types, also after a compaction")
@given(tables_and_predicates(), st.booleans())
@settings(
    max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)  # shrinking takes minutes
def test_statistics_hide_no_row(drawn: tuple[list[tuple[Rows, bool]], list[Predicate]], is_compacted: bool) -> None:
    files, wanted = drawn
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "orders")
        lake = stored(path, files)
        bare = without_statistics(Path(folder, "bare"), stored_rows(path))
        if is_compacted:
            assert len(compact(lake.table).added) == 1
        table = Reader(path)

        for predicate in wanted:
            assert_nothing_is_hidden(table, bare, predicate)


@pytest.mark.parametrize("has_sparks_footer", [True, False])
def test_a_nan_is_not_hidden_by_a_smaller_value_beside_it(path: Path, has_sparks_footer: bool) -> None:
    empty: dict[str, list[Any]] = {place: [None, None] for place in PLACES}
    stored(path, [(empty | {"x": [nan, 8000.0]}, has_sparks_footer), (empty, has_sparks_footer)])
    bare = without_statistics(path.with_name("bare"), stored_rows(path))

    assert_nothing_is_hidden(Reader(path), bare, Predicate("x", ">=", 1e142))


def test_files_that_delta_rs_has_compacted_are_rewritten(path: Path) -> None:
    lake = stored(path, [(HIDING, True), ({place: [values[0], None] for place, values in HIDING.items()}, True)])
    DeltaTable(path).optimize.compact()  # as earlier versions of kctl did
    bare = without_statistics(path.with_name("bare"), stored_rows(path))
    assert Reader(path).by_delta_rs(HIDDEN["a NaN"]) == []
    compaction = Compaction(lake.table)

    done = compaction.run(compaction.inexact_files(besides=[]))

    assert (len(done.removed), len(done.added)) == (1, 1)
    table = Reader(path)
    for what, predicate in HIDDEN.items():
        assert_nothing_is_hidden(table, bare, predicate)
        assert table.by_delta_rs(predicate) == [1], what
    assert Compaction(LakeTable(LocalFolder(path))).inexact_files(besides=[]) == []


SPARK = Path(__file__).with_name("written_by_spark.parquet")


@pytest.fixture
def folder(path: Path) -> Path:
    made = path / "kctl-1"
    made.mkdir(parents=True)
    return made


def test_a_column_whose_values_python_does_not_have_or_cannot_order_has_no_bounds(path: Path, folder: Path) -> None:
    shutil.copy(SPARK, folder)

    [file] = read_files(LocalFolder(path), LocalFolder(folder))

    found = json.loads(file.stats)
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

    assert json.loads(file.stats)["minValues"]["text"] == "a" * 32
    assert json.loads(file.stats)["maxValues"].get("text") == bound
    assert bound is None or bound >= text
