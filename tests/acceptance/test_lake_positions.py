"""Whatever moves the positions of a group, each message is a row of the table as often as it was read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from kafka import KafkaConsumer, TopicPartition

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.tables import lake, later, places, sent
from tests.conftest import eventually
from tests.servers import topics

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

WORKERS = ("worker-0", "worker-1")
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


def started(fleet: Fleet) -> Fleet:
    fleet.start(*WORKERS)
    eventually(lambda: fleet.owners() == set(WORKERS), SETTLE_SECONDS, "both have partitions")
    return fleet


def stored(table: Path, wanted: Counter[tuple[str, int, int]]) -> None:
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


def test_of_a_compacted_topic_every_message_that_is_left_is_a_row(make_fleet: MakeFleet, short_dir: Path) -> None:
    table = short_dir / "orders"
    fleet = make_fleet(partitions=2, workers=2, storage=lake(table))
    topics.delete_topic(fleet.broker.bootstrap_servers, fleet.topic)
    topics.create_topic(fleet.broker.bootstrap_servers, fleet.topic, 2, COMPACTED)
    for number in range(4):  # the same keys each time; the last message closes the earlier segments
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
    consumer = KafkaConsumer(bootstrap_servers=fleet.broker.bootstrap_servers, consumer_timeout_ms=2000)
    try:
        partitions = [TopicPartition(fleet.topic, number) for number in range(fleet.partitions)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        return Counter((record.topic, record.partition, record.offset) for record in consumer)
    finally:
        consumer.close()
