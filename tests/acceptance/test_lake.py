"""Each message of Kafka is one row of a Delta table, counted by delta-rs, under kills of any process."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kafka import KafkaConsumer, TopicPartition

from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.tables import Lake, StoredLake, lake, later, look_after, places, sent, shows_no_key
from tests.conftest import eventually
from tests.object_store_server import ObjectStoreServer
from tests.servers import topics

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "items.py"


def test_whatever_is_produced_is_in_the_table_once_despite_an_outage_of_its_store(
    make_fleet: MakeFleet, object_store: ObjectStoreServer
) -> None:
    """test_any_kill.py has a table in a folder."""
    table = StoredLake(object_store)
    fleet = make_fleet(partitions=3, storage=table.settings("maintenance = false"))
    fleet.send(3000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert table.places() == sent(fleet)

    load = fleet.load(2000)
    before = table.opened().version()
    eventually(lambda: table.opened().version() > before + 1, START_SECONDS, "batches are stored")
    fleet.kill_worker()
    look_after(fleet)
    table.be_away(30.0)
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert table.places() == sent(fleet)
    assert [each.name for each in table.opened().schema().fields] == [
        "topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers",
    ]  # fmt: skip
    shows_no_key(fleet, table.secret)
    fleet.kctl("seek", "--topic", fleet.topic, "--to", "earliest", "--yes")
    eventually(lambda: table.places() == sent(fleet) + sent(fleet), SETTLE_SECONDS, "each is a row once more")


@pytest.mark.shows("a batch of a lake waits until it is full, at most workers.trigger_seconds")
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
    before = fleet.dead_letters()
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
    assert [(row["id"], row["tries"]) for row in fleet.dead_letters()] == [(row["id"], 2) for row in others]


def requeued(table: Path, fleet: Fleet) -> int:
    return DeadLetterTable(LakeStorage(LocalFolder(table)), fleet.group).count_requeued()


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
        fleets[number % 2].kill_worker(f"worker-{drawn.randrange(2)}")
    for fleet, load in zip(fleets, loads, strict=True):
        fleet.finish(load)
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert table.places() == sent(fleets[0]) + sent(fleets[1])


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


@pytest.mark.shows("each message that a compacted topic still has is a row of the table once")
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_of_a_compacted_topic_every_message_that_is_left_is_a_row(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = make_fleet(partitions=2, workers=2, storage=lake(table))
    topics.delete_topic(fleet.broker.bootstrap_servers, fleet.topic)
    topics.create_topic(fleet.broker.bootstrap_servers, fleet.topic, 2, COMPACTED)
    for number in range(4):  # the same keys each time; the last message closes the earlier segments
        fleet.send(200, b"%d" % number)
        eventually(later(1.5), 5, "the segment is old enough")
    eventually(lambda: left(fleet).total() <= 410, 90, "it is compacted")

    fleet.start("worker-0", "worker-1")
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert 200 <= left(fleet).total() < sent(fleet).total()
    assert places(table) == left(fleet)
    fleet.send(200, b"afterwards")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")
    values = DeltaTable(table).to_pyarrow_table(columns=["value"])["value"].to_pylist()
    assert values.count(b"afterwards") == 200


def left(fleet: Fleet) -> Counter[tuple[str, int, int]]:
    consumer = KafkaConsumer(bootstrap_servers=fleet.broker.bootstrap_servers, consumer_timeout_ms=2000)
    try:
        partitions = [TopicPartition(fleet.topic, number) for number in range(fleet.partitions)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        return Counter((record.topic, record.partition, record.offset) for record in consumer)
    finally:
        consumer.close()
