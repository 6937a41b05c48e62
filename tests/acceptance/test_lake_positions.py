"""Whatever moves the positions of a group, each message is a row of the table as often as it was read."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kafka import KafkaConsumer, TopicPartition

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.scenes import UncleanElection, create, layout
from tests.acceptance.tables import lake, later, places, sent
from tests.clusters import running_cluster
from tests.conftest import eventually
from tests.servers import topics
from tests.servers.kafka_cluster import KafkaCluster

pytestmark = [
    pytest.mark.real,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

WORKERS = ("worker-0", "worker-1")
FREEZES = 6
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


@pytest.fixture
def cluster() -> Iterator[KafkaCluster]:
    with running_cluster({"min.insync.replicas": "2"}) as running:
        yield running


def started(fleet: Fleet) -> Fleet:
    fleet.start(*WORKERS)
    eventually(lambda: fleet.owners() == set(WORKERS), SETTLE_SECONDS, "both have partitions")
    return fleet


def stored(table: Path, wanted: Counter[tuple[str, int, int]]) -> None:
    """Wait until so many rows are there, and compare them."""
    eventually(lambda: places(table).total() >= wanted.total(), SETTLE_SECONDS, "it is stored")
    assert places(table) == wanted


def values(table: Path) -> Counter[bytes]:
    return Counter(DeltaTable(table).to_pyarrow_table(columns=["value"])["value"].to_pylist())


def test_resets_to_earliest_latest_and_between_are_counted(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = started(make_fleet(partitions=4, workers=2, storage=lake(table)))
    fleet.send(800)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    wanted = sent(fleet)
    stored(table, wanted)

    fleet.kctl("seek", "--topic", fleet.topic, "--to", "earliest", "--yes")
    wanted += sent(fleet)
    stored(table, wanted)

    fleet.kctl("seek", "--topic", fleet.topic, "--partition", "2", "--to", "150", "--yes")
    wanted += Counter({(fleet.topic, 2, at): 1 for at in range(150, 200)})
    stored(table, wanted)

    fleet.kctl("pause", "--all")
    before = sent(fleet)
    fleet.send(400)
    skipped = sent(fleet) - before
    fleet.kctl("seek", "--topic", fleet.topic, "--to", "latest", "--yes")
    fleet.kctl("resume", "--all")
    fleet.send(40)
    wanted += sent(fleet) - before - skipped
    stored(table, wanted)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")
    stored(table, wanted)


def test_rows_of_a_topic_that_grows_and_is_recreated_are_counted(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = started(make_fleet(partitions=2, workers=2, storage=lake(table)))
    load = fleet.load(500)
    eventually(lambda: places(table).total() > 500, SETTLE_SECONDS, "it is stored")
    fleet.finish(load)
    topics.add_partitions(fleet.broker.bootstrap_servers, fleet.topic, 4)
    fleet.partitions = 4
    load = fleet.load(500)
    eventually(lambda: {partition for _, partition, _ in places(table)} == {0, 1, 2, 3}, SETTLE_SECONDS, "all are read")
    fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")
    first = sent(fleet)
    stored(table, first)

    topics.delete_topic(fleet.broker.bootstrap_servers, fleet.topic)
    eventually(lambda: fleet.offsets() == {}, SETTLE_SECONDS, "the topic is gone")
    fleet.sent.clear()
    fleet.partitions = 3
    topics.create_topic(fleet.broker.bootstrap_servers, fleet.topic, 3)
    fleet.send(600)

    eventually(fleet.is_caught_up, SETTLE_SECONDS, "the second topic is read")
    stored(table, first + sent(fleet))
    assert "topic_recreated" in {event["kind"] for event in fleet.events()}


def test_of_a_compacted_topic_every_message_that_is_left_is_a_row(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = make_fleet(partitions=2, workers=2, storage=lake(table))
    topics.delete_topic(fleet.broker.bootstrap_servers, fleet.topic)
    topics.create_topic(fleet.broker.bootstrap_servers, fleet.topic, 2, COMPACTED)
    for number in range(4):  # the same keys each time; the last one closes the segments of those before
        fleet.send(200, b"%d" % number)
        eventually(later(1.5), 5, "the segment is old enough")
    eventually(lambda: left(fleet).total() <= 410, 90, "it is compacted")

    started(fleet)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert 200 <= left(fleet).total() < sent(fleet).total()
    assert places(table) == left(fleet)
    fleet.send(200, b"afterwards")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")
    stored(table, places(table) | left(fleet))
    assert values(table)[b"afterwards"] == 200


def left(fleet: Fleet) -> Counter[tuple[str, int, int]]:
    """What a consumer of kafka-python reads of the topic."""
    consumer = KafkaConsumer(bootstrap_servers=fleet.broker.bootstrap_servers, consumer_timeout_ms=2000)
    try:
        partitions = [TopicPartition(fleet.topic, number) for number in range(fleet.partitions)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        return Counter((record.topic, record.partition, record.offset) for record in consumer)
    finally:
        consumer.close()


def test_what_follows_a_truncation_is_a_row_once(cluster: KafkaCluster, make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = make_fleet(workers=2, partitions=2, on=cluster, storage=lake(table))
    topics.delete_topic(cluster.bootstrap_servers, fleet.topic)
    eventually(lambda: layout(cluster, fleet.topic) == (), SETTLE_SECONDS, "the topic is gone")
    create(cluster, fleet.topic, UncleanElection.REPLICAS, **UncleanElection.CONFIGS)
    started(fleet)
    fleet.send(20, b"that both brokers have")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it is read")
    election = UncleanElection(cluster, fleet.topic)
    election.part()
    fleet.send(20, b"that only one broker has")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it is read")

    election.hold()
    eventually(
        lambda: "truncated" in {event["kind"] for event in fleet.events()}, SETTLE_SECONDS, "the truncation is reported"
    )
    for tp in fleet.sent:
        fleet.sent[tp] = 10
    fleet.send(30, b"after the truncation")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what came after is read")

    wanted = {b"that both brokers have": 20, b"that only one broker has": 20, b"after the truncation": 30}
    eventually(lambda: values(table).total() >= 70, SETTLE_SECONDS, "it is stored")
    assert values(table) == wanted


def test_a_table_restored_from_an_older_copy_has_every_message_again(make_fleet: MakeFleet, short_dir: Path) -> None:
    table, copy = short_dir / "orders", short_dir / "copy"
    fleet = started(make_fleet(partitions=4, workers=2, storage=lake(table)))
    fleet.send(800)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    fleet.stop()
    shutil.copytree(table, copy)
    started(fleet)
    fleet.send(400)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    stored(table, sent(fleet))
    fleet.stop()
    shutil.rmtree(table)
    shutil.copytree(copy, table)

    fleet.send(40)
    started(fleet)

    stored(table, sent(fleet))
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")
    stored(table, sent(fleet))
    rolled_back = {event["partition"] for event in fleet.events() if event["kind"] == "storage_rolled_back"}
    assert rolled_back == {0, 1, 2, 3}


@pytest.mark.parametrize("engine", ["shared", "own"])
def test_a_worker_frozen_past_its_session_stores_nothing(engine: str, make_fleet: MakeFleet, short_dir: Path) -> None:
    """In the middle of batches: the other one has stored and committed its partitions before it wakes up."""
    table, drawn = short_dir / "orders", random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    fleet = make_fleet(
        partitions=4,
        workers=2,
        storage=lake(table, "maintenance = false"),
        trigger="0.0",
        engine=engine,
        workers_more="ping_timeout_seconds = 120",
    )
    started(fleet)
    load = fleet.load(1000)
    for _ in range(FREEZES):
        eventually(lambda: fleet.owners() == set(WORKERS), START_SECONDS, "both have partitions")
        name = drawn.choice(WORKERS)
        (other,) = set(WORKERS) - {name}
        pid, begun = fleet.workers()[name]["pid"], (table / "_kctl").glob
        left = set(begun("*.json"))  # by batches that were refused
        eventually(lambda: set(begun("*.json")) - left, SETTLE_SECONDS, "a batch is in flight")  # noqa: B023
        os.kill(pid, signal.SIGSTOP)
        try:
            eventually(lambda: fleet.owners() == {other}, SETTLE_SECONDS, "its partitions have moved")  # noqa: B023
            version = DeltaTable(table).version()
            eventually(lambda: DeltaTable(table).version() > version + 2, SETTLE_SECONDS, "they are stored")  # noqa: B023
        finally:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: fleet.is_running(*WORKERS), SETTLE_SECONDS, "it goes on")
        assert fleet.workers()[name]["pid"] == pid, "it was not started again"
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    stored(table, sent(fleet))
