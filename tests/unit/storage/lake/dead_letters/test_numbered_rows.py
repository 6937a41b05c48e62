from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from kctl_agent.storage.lake.dead_letters.search import read
from kctl_agent.storage.lake.dead_letters.selection import Condition, is_null, of_cluster, than

NOW = datetime(2026, 11, 24, tzinfo=UTC)
TEXTS = ["", "it's", 'a "b"', "c", None]
NOT_NULL = [each for each in TEXTS if each is not None]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """The first file lacks the column `reading`; an UPDATE of delta-rs wrote the last file."""
    path = Path(tmp_path_factory.mktemp("dead"), "orders_dead_letters")
    rows = [
        {
            "cluster": TEXTS[number % 5],
            "group": TEXTS[number % 4],
            "topic": "t",
            "partition": number % 3,
            "offset": 100 + number // 2,
            "failed_at": NOW + timedelta(days=number),
            "requeue": number % 4 or None,
        }
        for number in range(30)
    ]
    write_deltalake(path, pa.Table.from_pylist(rows))
    more = pa.Table.from_pylist([row | {"reading": TEXTS[at % 5], "offset": 200 + at} for at, row in enumerate(rows)])
    write_deltalake(path, more, mode="append", schema_mode="merge")
    table = DeltaTable(path)
    table.update({"requeue": "7"}, predicate='"offset" > 220')
    return table


CONDITIONS = st.one_of(
    st.builds(than, st.sampled_from(["group", "reading"]), st.just("="), st.sampled_from(NOT_NULL)),
    st.builds(of_cluster, st.sampled_from(TEXTS)),
    st.builds(
        than, st.sampled_from(["partition", "requeue"]), st.sampled_from(["=", ">", "<=", ">="]), st.integers(0, 8)
    ),
    st.builds(than, st.just("offset"), st.sampled_from(["=", ">", "<=", ">="]), st.integers(95, 235)),
    st.builds(lambda days: than("failed_at", "<=", NOW + timedelta(days=days)), st.integers(-1, 31)),
    st.just(is_null("requeue")),
)


@given(st.lists(CONDITIONS, min_size=1, max_size=4))
def test_what_is_read_is_what_the_sql_of_a_change_means(table: DeltaTable, conditions: list[Condition]) -> None:
    wanted = reduce(operator.and_, conditions)
    [*batches] = QueryBuilder().register("dead", table).execute(f'select "offset" from dead where {wanted.sql}')
    by_sql = sorted(at for batch in batches for at in pa.record_batch(batch).column(0).to_pylist())

    assert sorted(read(table, ["offset"], wanted)["offset"].to_pylist()) == by_sql


def test_a_file_that_is_damaged_is_an_error_of_the_place(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "dead", pa.table({"offset": [1]}))
    [file] = (tmp_path / "dead").glob("*.parquet")
    file.write_bytes(b"PAR1 no file of Parquet PAR1")

    with pytest.raises(OSError, match="Parquet"):
        read(DeltaTable(tmp_path / "dead"), ["offset"], than("offset", ">", 0))
