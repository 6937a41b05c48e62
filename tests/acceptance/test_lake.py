"""Each message of Kafka is one row of a Delta table, counted by delta-rs, under kills of any process."""

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kafka import KafkaConsumer, TopicPartition

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.tables import StoredLake, lake, later, look_after, places, sent, shows_no_key
from tests.conftest import eventually
from tests.object_store_server import ObjectStoreServer
from tests.servers import topics

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def test_whatever_is_produced_is_in_the_table_once_despite_an_outage_of_its_store(
    make_fleet: MakeFleet, object_store: ObjectStoreServer
) -> None:
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
