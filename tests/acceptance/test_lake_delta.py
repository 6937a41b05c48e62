"""Delta for Spark works on the same table as a fleet."""

import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kctl_agent.storage.base import TableRefused
from kctl_agent.storage.chunk import Advance
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.maintenance.vacuum import unused
from kctl_agent.storage.lake.storage import LakeStorage
from tests.acceptance.delta_spark import DeltaRefused, DeltaSpark, Found, delta_rs_rows
from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet
from tests.acceptance.tables import Lake, later, places, sent
from tests.conftest import eventually
from tests.skipping import HIDING, arrow, opened
from tests.table_conformance import compact

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
FIRST, SECOND = 1600, 400
"""Messages of at least two batches, in two partitions: offsets below 800 in the first batch, from 800 in the second."""
SKIPPING = (  # by the log's statistics, the files of the first messages have no match for these
    "offset >= 800",
    "at >= timestamp_micros(800 * 1000001 - 500000000)",
    "day >= date_add(date'1969-12-01', 80)",
    "price >= 800 / 7d",
    "weight >= 800",
    "timestamp >= timestamp_millis({sent_at})",
)
OTHERS = "insert into {} (topic, partition, offset, country) values ('other', 0, {}, '50%'), ('other', 0, {}, 'de')"
REFUSED = {
    "set tblproperties ('delta.enableChangeDataFeed' = 'true')": "cannot write: changeDataFeed",
    "set tblproperties ('delta.columnMapping.mode' = 'name')": "cannot write: columnMapping",
    "set tblproperties ('delta.enableRowTracking' = 'true')": "cannot write: domainMetadata, rowTracking",
    "set tblproperties ('delta.enableInCommitTimestamps' = 'true')": "cannot write: inCommitTimestamp",
    "set tblproperties ('delta.checkpointPolicy' = 'v2')": "cannot write: v2Checkpoint",
    "set tblproperties ('delta.setTransactionRetentionDuration' = 'interval 7 days')": "be stored twice: unset it",
    "add constraint positive check (offset >= 0)": "requires writers of version 3",
}


@pytest.fixture
def fleet(make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return make_fleet(
        partitions=2,
        storage=Lake(short_dir).settings('partition_by = ["country"]\nmaintenance = false'),
        workers_more='transform = "tests.acceptance.transforms:typed_by_offset"',
    )


def name_of(table: Path) -> str:
    return f"delta.`{table}`"


def assert_each_once(delta: DeltaSpark, table: Lake, fleet: Fleet) -> None:
    """Checks both tables as delta-rs and Delta's own Spark read them."""
    marked = Counter({place: 1 for place in sent(fleet) if place[2] % 10 == 0})
    for path, expected in (table.path, sent(fleet) - marked), (table.dead_letters_path, marked):
        rows = delta.sql(f"select topic, partition, offset from {name_of(path)} where topic = '{fleet.topic}'").rows
        assert Counter(map(tuple, rows)) == expected
        assert Counter({place: n for place, n in places(path).items() if place[0] == fleet.topic}) == expected


def test_deltas_own_spark_reads_skips_files_appends_compacts_beside_the_fleet(fleet: Fleet, short_dir: Path) -> None:
    table = Lake(short_dir).path
    with DeltaSpark(short_dir / "delta") as delta:
        fleet.send(FIRST)
        fleet.start()
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
        sent_at = int(time.time() * 1000)
        fleet.send(SECOND)
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

        for each in (table, Lake(short_dir).dead_letters_path):
            columns = [field.name for field in DeltaTable(each).schema().fields]
            found = delta.sql(f"select {', '.join(f'`{name}`' for name in columns)} from {name_of(each)}")
            assert sorted(found.rows, key=json.dumps) == sorted(delta_rs_rows(each, columns), key=json.dumps)
        files = len(DeltaTable(table).file_uris())
        for condition in SKIPPING:
            found = delta.sql(f"select offset from {name_of(table)} where {condition.format(sent_at=sent_at)}")
            assert len(found.rows) == SECOND * 9 / 10, condition
            assert found.files_read is not None
            assert found.files_read < files, condition

        load = fleet.load(500)
        delta.sql(OTHERS.format(name_of(table), 1, 2))
        version = DeltaTable(table).version()
        eventually(lambda: DeltaTable(table).version() > version, START_SECONDS, "batches are stored")
        delta.sql(f"optimize {name_of(table)}")
        fleet.finish(load)
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

        assert_each_once(delta, Lake(short_dir), fleet)
        others = delta.sql(f"select offset from {name_of(table)} where topic = 'other' order by offset")
        assert others.rows == [[1], [2]]


@pytest.mark.timeout(900)
def test_deltas_own_spark_deletes_merges_and_vacuums_while_workers_are_killed(fleet: Fleet, short_dir: Path) -> None:
    """Stored offsets also survive Delta's checkpoints and clean-ups of the log."""
    table, drawn = Lake(short_dir).path, random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    with DeltaSpark(short_dir / "delta") as delta:
        fleet.send(FIRST)
        fleet.start()
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
        delta.sql(f"alter table {name_of(table)} set tblproperties ('delta.checkpointInterval' = '3')")
        load = fleet.load(500)
        for turn in range(4):
            delta.sql(OTHERS.format(name_of(table), 2 * turn, 2 * turn + 1))
            backdate(table)
            for statement in written_by_others(table, turn):
                beside(fleet, delta, statement)
                version = DeltaTable(table).version()
                eventually(lambda: DeltaTable(table).version() > version, START_SECONDS, "batches are stored")  # noqa: B023
            eventually(later(drawn.uniform(0, 0.5)), 5, "the moment has come")
            fleet.kill_worker()
        fleet.finish(load)
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

        assert not (table / "_delta_log" / f"{1:020}.json").exists()
        assert_each_once(delta, Lake(short_dir), fleet)
        others = delta.sql(f"select offset, more_0, more_3 from {name_of(table)} where topic = 'other' order by offset")
        assert others.rows == [[1, "0", None], [3, None, None], [5, None, None], [7, None, "3"]]


def written_by_others(table: Path, turn: int) -> list[str]:
    """Statements that change rows of another topic, all files, the schema, and once the protocol."""
    name, type_ = name_of(table), "timestamp_ntz" if turn == 2 else "string"
    allowed = [f"alter table {name} set tblproperties ('delta.feature.timestampNtz' = 'supported')"]
    merged = (
        f"merge into {name} t using (select 'other' as topic, {2 * turn + 1} as offset) u "
        f"on t.topic = u.topic and t.offset = u.offset when matched then update set t.more_{turn} = '{turn}'"
    )
    return [
        *(allowed if type_ == "timestamp_ntz" else []),
        f"alter table {name} add column more_{turn} {type_}",
        f"delete from {name} where topic = 'other' and offset = {2 * turn}",
        *([merged] if type_ == "string" and turn in (0, 3) else []),
        f"optimize {name}",
        f"vacuum {name} retain 168 hours",
    ]


def test_tables_to_which_spark_has_added_features_are_rejected_by_their_names(short_dir: Path) -> None:
    with DeltaSpark(short_dir / "delta") as delta:
        for number, (change, reason) in enumerate(REFUSED.items()):
            table = short_dir / f"table{number}"
            delta.sql(f"create table {name_of(table)} (topic string, partition int, offset long) using delta")
            LakeStorage(LocalFolder(table)).prepare()
            delta.sql(f"alter table {name_of(table)} {change}")
            with pytest.raises(TableRefused, match=reason):
                LakeStorage(LocalFolder(table)).prepare()


def ids(found: Found) -> list[int]:
    return sorted(row[0] for row in found.rows)


def test_a_table_with_deletion_vectors_is_appended_to_and_not_compacted(short_dir: Path) -> None:
    """Checkpoints that kctl has written keep the deletion vectors, too."""
    table = short_dir / "table"
    with DeltaSpark(short_dir / "delta") as delta:
        lake = opened(table)
        delta.sql(
            f"alter table {name_of(table)} set tblproperties "
            "('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '2')"
        )
        for number in range(6):
            batch = lake.begin([Advance("t", 0, 1, number, number + 1)])
            batch.folder.make()
            pq.write_table(arrow(HIDING, 10 * number), Path(batch.folder.uri) / "part-0.parquet")
            batch.commit()
            lake.table.checkpoints.wait()
            delta.sql(f"delete from {name_of(table)} where id = {10 * number + 1}")

        assert DeltaTable(table).deletion_vectors() is not None
        assert list((table / "_delta_log").glob("*.checkpoint.parquet"))
        with pytest.raises(TableRefused, match="OPTIMIZE it with Spark"):
            compact(lake.table)
        assert ids(delta.sql(f"select id from {name_of(table)}")) == list(range(0, 60, 10))
        assert lake.count().rows == 6
    assert not unused(lake.table, 0)


def backdate(table: Path) -> None:
    """Makes all entries of the log so old that a clean-up removes those before the newest checkpoint."""
    old = time.time() - 40 * 86400
    for path in (table / "_delta_log").glob("*"):
        os.utime(path, (old, old))


def beside(fleet: Fleet, delta: DeltaSpark, statement: str) -> None:
    """Runs a statement next to a fleet.

    Delta rejects a DELETE or MERGE if a batch was committed since it began to read, regardless of the rows. So if
    batches come faster, the fleet is paused. If a worker's checkpoint removes backdated entries between Spark's listing
    and reading of the log, the statement restarts. If that was after its commit, the column exists.
    """
    try:
        delta.sql(statement)
    except DeltaRefused as refused:
        is_of_file = "FILE_NOT_EXIST" in str(refused) and "/_delta_log/" in str(refused)
        if is_of_file or "None.get" in str(refused):  # also when it tries another checkpoint because one is gone
            try:
                delta.sql(statement)
            except DeltaRefused as again:
                if again.condition != "FIELD_ALREADY_EXISTS":
                    raise
            return
        if refused.condition != "ConcurrentAppendException":
            raise
        fleet.kctl("pause", "--all")
        delta.sql(statement)
        fleet.kctl("resume", "--all")
