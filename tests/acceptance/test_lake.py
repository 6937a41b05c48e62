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
from tests.acceptance.tables import Lake, lake, later, places, sent
from tests.conftest import eventually

KILLS = 2
"""test_any_kill.py, in `make test-long`, has more."""
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "items.py"


def positions(table: Path, fleet: Fleet) -> dict[int, int]:
    """Each partition's last `txn` action in the log; read without kctl and without delta-rs."""
    found: dict[int, int] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, commit.read_text().splitlines()):
            match action.get("txn", {}).get("appId", "").split("/"):
                case ["kctl", _, fleet.group, fleet.topic, partition]:
                    found[int(partition)] = action["txn"]["version"]
    return found


def read_by_duckdb(table: Path) -> Counter[tuple[str, int, int]]:
    """DuckDB reads the files of the log's entries, without kctl and without delta-rs."""
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
    """Compacts, and removes all files that only older versions have, during whatever batch runs."""
    fleet.kctl("storage", "optimize")
    fleet.kctl("storage", "vacuum", "--retention-hours", "0", "--yes")


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


def test_transforms_parse_and_explode(make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the transform is repaired, and dead letters are requeued while the topic is quiet."""
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
    assert fleet.kctl("storage", "dead", "requeue").stdout == "10 dead letters requeued\n"
    eventually(lambda: requeued(table, fleet) == 0, SETTLE_SECONDS, "they are requeued")

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
    listed = json.loads(fleet.kctl("storage", "dead", "list", "-o", "json", "--limit", "1000").stdout)["rows"]
    return sorted(listed, key=lambda row: (row["partition"], row["offset"]))


def requeued(table: Path, fleet: Fleet) -> int:
    return DeadLetterTable(LakeStorage(LocalFolder(table)), fleet.group).count_requeued()


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.shows("with a table that several fleets write, no row is lost or doubled")
def test_two_fleets_fill_one_table_while_their_workers_are_killed(make_fleet: MakeFleet, short_dir: Path) -> None:
    drawn = random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    table = Lake(short_dir)
    fleets = [make_fleet(partitions=2, workers=2, storage=table.settings()) for _ in range(2)]
    for fleet in fleets:
        fleet.start()
    for fleet in fleets:
        eventually(lambda: fleet.is_running("worker-0", "worker-1"), START_SECONDS, "it runs")  # noqa: B023
    loads = [fleet.load(500) for fleet in fleets]
    for number in range(6):
        fleet, name = fleets[number % 2], f"worker-{drawn.randrange(2)}"
        pid = fleet.workers()[name]["pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: fleet.is_running(name) and fleet.workers()[name]["pid"] != pid,  # noqa: B023
            START_SECONDS,
            "it runs again",
        )
    for fleet, load in zip(fleets, loads, strict=True):
        fleet.finish(load)
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert table.places() == sent(fleets[0]) + sent(fleets[1])


def _pid(fleet: Fleet) -> Any:
    return fleet.workers()["worker-0"]["pid"]
