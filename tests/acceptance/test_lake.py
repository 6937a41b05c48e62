"""Each message of Kafka is one row of a Delta table, counted by delta-rs, under kills of any process."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pytest
from deltalake import DeltaTable

from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.tables import lake, later, places, sent
from tests.conftest import eventually

pytestmark = [pytest.mark.real]

KILLS = 2
"""With more of anything: test_any_kill.py, in `make test-long`."""
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "items.py"


def positions(table: Path, fleet: Fleet) -> dict[int, int]:
    """Of each partition, what the last `txn` action of the log has; read without kctl and without delta-rs."""
    found: dict[int, int] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            match action.get("txn", {}).get("appId", "").split("/"):
                case ["kctl", _, fleet.group, fleet.topic, partition]:
                    found[int(partition)] = action["txn"]["version"]
    return found


def read_by_duckdb(table: Path) -> Counter[tuple[str, int, int]]:
    """The same without kctl and without delta-rs: the files of the log's entries, read by an engine of its own."""
    files: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action:
                files[unquote(action["add"]["path"])] = None
            elif "remove" in action:
                del files[unquote(action["remove"]["path"])]
    paths = [str(table / path) for path in files]
    rows = duckdb.execute('select topic, "partition", "offset" from read_parquet(?)', [paths]).fetchall()
    return Counter((topic, partition, offset) for topic, partition, offset in rows)


def test_whatever_is_produced_is_in_the_table_once_despite_kills(make_fleet: MakeFleet, short_dir: Path) -> None:
    table, drawn = short_dir / "orders", random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    fleet = make_fleet(partitions=3, storage=lake(table, "maintenance = false"))
    fleet.send(3000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    members = fleet.rpc("member_leader")["members"]
    assert [member["worker"] for member in members] == ["worker-0"]
    assert places(table) == sent(fleet)

    load = fleet.load(2000)
    for _ in range(KILLS):
        before = DeltaTable(table).version()
        eventually(lambda: DeltaTable(table).version() > before + 1, START_SECONDS, "batches are stored")  # noqa: B023
        pid = fleet.workers()["worker-0"]["pid"]
        eventually(later(drawn.uniform(0, 0.5)), 5, "the moment has come")
        os.kill(pid, signal.SIGKILL)
        look_after(fleet)
        eventually(lambda: fleet.is_running("worker-0") and _pid(fleet) != pid, START_SECONDS, "it runs again")  # noqa: B023
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert places(table) == read_by_duckdb(table) == sent(fleet)
    assert positions(table, fleet) == {tp.partition: count for tp, count in fleet.sent.items()}
    columns = DeltaTable(table).schema().fields
    assert [c.name for c in columns] == [
        "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
    ]  # fmt: skip


def look_after(fleet: Fleet) -> None:
    """Compacted, and everything removed that no version has but the newest, beside whatever batch there is."""
    fleet.kctl("storage", "optimize")
    fleet.kctl("storage", "vacuum", "--retention-hours", "0", "--yes")


@pytest.mark.long
def test_the_fleet_compacts_small_files_while_batches_go_on(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = make_fleet(partitions=3, storage=lake(table))
    fleet.send(10)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    load = fleet.load(500)
    eventually(lambda: any(entry.get("kctl") == "compaction" for entry in history(table)), 300, "it is compacted")
    version = DeltaTable(table).version()
    eventually(lambda: DeltaTable(table).version() > version, START_SECONDS, "batches are stored")
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert places(table) == sent(fleet)
    assert positions(table, fleet) == {tp.partition: count for tp, count in fleet.sent.items()}
    counted = eventually(lambda: fleet.rpc("block_size").get("table"), 30, "the table is counted")
    assert counted["rows"] > 10


def history(table: Path) -> list[dict[str, Any]]:
    return DeltaTable(table).history()


@pytest.mark.long
def test_a_checkpoint_of_spark_is_scratch(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = make_fleet(partitions=2, storage=lake(table))
    fleet.send(1000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    fleet.stop()
    shutil.rmtree(fleet.directory / "data")
    fleet.send(1000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert places(table) == sent(fleet)


@pytest.mark.shows("a batch of a lake waits until it is full, at most workers.trigger_seconds")
@pytest.mark.long
def test_a_full_batch_is_stored_at_once_and_what_is_left_waits(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = make_fleet(partitions=2, storage=lake(table), trigger="3600.0", workers_more="max_records_per_batch = 100")
    fleet.send(50)
    fleet.start()
    eventually(lambda: table.exists() and DeltaTable(table).count() == 50, START_SECONDS, "the first batch is stored")
    fleet.send(350)
    eventually(lambda: DeltaTable(table).count() == 350, START_SECONDS, "three full batches are stored")
    fleet.send(60)
    eventually(lambda: DeltaTable(table).count() == 450, START_SECONDS, "another one is full")
    fleet.stop()

    assert max(places(table).values()) == 1
    assert {len(list(batch.glob("*.parquet"))) for batch in table.glob("kctl-*")} == {1}, "of few records"


def test_a_transform_of_the_batch_may_parse_and_explode_and_the_table_is_partitioned(
    make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the transform is repaired, and dead letters are put back while the topic is quiet."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KCTL_REPAIRED", str(short_dir / "repaired"))
    table = short_dir / "items"
    fleet = make_fleet(
        partitions=2,
        storage=lake(table, 'partition_by = ["country"]'),
        workers_more='transform = "tests.acceptance.transforms:orders_when_repaired"',
    )
    shutil.copy(EXAMPLE, fleet.directory)
    fleet.send(500, b'{"id": 7, "country": "a b/c", "items": ["x", "y"]}')
    fleet.send(100, b'{"id": 8, "items": ["z"]}')
    fleet.send(10, b"no JSON")
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    found = DeltaTable(table).to_pyarrow_table()
    rows = Counter(zip(*(found[name].to_pylist() for name in ("id", "country", "item")), strict=True))
    assert rows == {(7, "a b/c", "x"): 500, (7, "a b/c", "y"): 500, (8, None, "z"): 100}
    assert "_kctl_error" not in found.schema.names

    (short_dir / "repaired").touch()
    before = dead(fleet)
    assert [(row["value"], row["error"]) for row in before] == [("no JSON", "it is no JSON order")] * 10
    assert fleet.kctl("storage", "dead", "requeue").stdout == "10 dead letters put back\n"
    eventually(lambda: requeued(table, fleet) == 0, SETTLE_SECONDS, "they are put back")

    readable, others = ([row for row in before if row["offset"] % 2 == odd] for odd in (0, 1))
    found = DeltaTable(table).to_pyarrow_table()
    ids = Counter(zip(found["id"].to_pylist(), found["offset"].to_pylist(), strict=True))
    assert {offset for id_, offset in ids if id_ == 9} == {row["offset"] for row in readable}
    assert (sum(count for (id_, _), count in ids.items() if id_ == 9), found.num_rows) == (
        len(readable),
        1100 + len(readable),
    )
    assert [(row["id"], row["tries"]) for row in dead(fleet)] == [(row["id"], 2) for row in others]


def dead(fleet: Fleet) -> list[dict[str, Any]]:
    """Its dead letters, by place."""
    listed = json.loads(fleet.kctl("storage", "dead", "list", "-o", "json", "--limit", "1000").stdout)["rows"]
    return sorted(listed, key=lambda row: (row["partition"], row["offset"]))


def requeued(table: Path, fleet: Fleet) -> int:
    """Dead letters that wait for a worker to put them back."""
    return DeadLetterTable(LakeStorage(LocalFolder(table)), fleet.group).count_requeued()


@pytest.mark.long
def test_a_column_that_the_next_transform_makes_is_added_to_the_table(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "sizes"
    fleet = make_fleet(
        partitions=2, storage=lake(table, "merge_schema = true"), workers_more='transform = "sizes:made"'
    )
    transform = 'def made(records):\n    return records.selectExpr("topic", "partition", "offset"{more})\n'
    fleet.directory.joinpath("sizes.py").write_text(transform.format(more=""))
    fleet.send(100)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    fleet.directory.joinpath("sizes.py").write_text(transform.format(more=', "length(value) as size"'))
    fleet.kctl("restart", "--all", "--wait")
    fleet.send(50)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    found = DeltaTable(table).to_pyarrow_table()
    assert places(table) == sent(fleet)
    assert [field.name for field in DeltaTable(table).schema().fields] == ["topic", "partition", "offset", "size"]
    assert found["size"].null_count == 100


@pytest.mark.long
def test_after_a_reset_to_the_beginning_all_rows_come_again(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = make_fleet(partitions=1, storage=lake(table))
    fleet.send(1000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    fleet.kctl("seek", "--topic", fleet.topic, "--partition", "0", "--to", "400", "--yes")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it is read again")

    once, twice = range(400), range(400, 1000)
    eventually(lambda: places(table).total() == 1600, SETTLE_SECONDS, "it is stored again")
    counted = places(table)
    assert {counted[fleet.topic, 0, at] for at in once} == {1}
    assert {counted[fleet.topic, 0, at] for at in twice} == {2}


@pytest.mark.long
def test_unreadable_messages_die_once(make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed also between the commit of the dead letters and that of the rows."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    table, drawn = short_dir / "orders", random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    fleet = make_fleet(
        partitions=3, storage=lake(table), workers_more='transform = "tests.acceptance.transforms:every_tenth_marked"'
    )
    fleet.send(3000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    load = fleet.load(2000)
    dead_letters = table.with_name("orders_dead_letters")
    for number in range(4 * KILLS):
        before = DeltaTable(dead_letters).version()
        eventually(lambda: DeltaTable(dead_letters).version() > before, START_SECONDS, "batches are stored")  # noqa: B023
        pid = fleet.workers()["worker-0"]["pid"]
        if number % 2:  # else at once: the rows of that batch are not committed yet
            eventually(later(drawn.uniform(0, 0.5)), 5, "the moment has come")
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: fleet.is_running("worker-0") and _pid(fleet) != pid, START_SECONDS, "it runs again")  # noqa: B023
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    marked = Counter({place: 1 for place in sent(fleet) if place[2] % 10 == 0})
    assert places(dead_letters) == marked
    assert places(table) == sent(fleet) - marked


@pytest.mark.long
@pytest.mark.timeout(600)
def test_requeued_ones_are_rows_once(make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed also as soon as their rows are committed, while the table of dead letters still has them; and the
    transform is repaired beside all that."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KCTL_REPAIRED", str(short_dir / "repaired"))
    table, drawn = short_dir / "orders", random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    fleet = make_fleet(
        partitions=3,
        workers=2,
        storage=lake(table),
        workers_more='transform = "tests.acceptance.transforms:fewer_marked_when_repaired"',
    )
    fleet.send(3000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    load = fleet.load(1000)
    for number in range(4 * KILLS):
        if number == 2 * KILLS:
            (short_dir / "repaired").touch()
        before = put_back_up_to(table, fleet)
        fleet.kctl("storage", "dead", "requeue")
        if number % 2:
            eventually(lambda: put_back_up_to(table, fleet) > before, START_SECONDS, "they are put back")  # noqa: B023
        else:
            eventually(later(drawn.uniform(0, 3)), 5, "the moment has come")
        pids = {name: fleet.workers()[name]["pid"] for name in ("worker-0", "worker-1")}
        for name in pids if number % 2 else [drawn.choice(list(pids))]:
            os.kill(pids[name], signal.SIGKILL)
            eventually(
                lambda: fleet.is_running(name) and fleet.workers()[name]["pid"] != pids[name],  # noqa: B023
                START_SECONDS,
                "it runs again",
            )
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    fleet.kctl("storage", "dead", "requeue")
    eventually(lambda: requeued(table, fleet) == 0, SETTLE_SECONDS, "all are put back")

    marked = Counter({place: 1 for place in sent(fleet) if place[2] % 100 == 0})
    assert places(table.with_name("orders_dead_letters")) == marked
    assert places(table) == sent(fleet) - marked


def put_back_up_to(table: Path, fleet: Fleet) -> int:
    """The newest request whose rows are in the table."""
    with LakeStorage(LocalFolder(table)).table.state() as state:
        names = [name for name in state.transaction_names() if name.startswith("kctl/requeued/")]
        return max(
            (state.transaction_version(name) or 0 for name in names if name.endswith(f"/{fleet.group}")), default=0
        )


@pytest.mark.long
def test_a_transform_that_marks_other_rows_when_it_is_run_again_stores_nothing_and_says_why(
    make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    table = short_dir / "orders"
    fleet = make_fleet(
        partitions=1, storage=lake(table), workers_more='transform = "tests.acceptance.transforms:marks_at_random"'
    )
    fleet.send(1000)
    fleet.start()

    eventually(
        lambda: "what it marks must follow from the message" in str(fleet.workers().get("worker-0")),
        START_SECONDS,
        "the reason is shown",
    )
    assert places(table).total() == 0
    assert not places(table.with_name("orders_dead_letters")).total()


def _pid(fleet: Fleet) -> Any:
    return fleet.workers()["worker-0"]["pid"]
