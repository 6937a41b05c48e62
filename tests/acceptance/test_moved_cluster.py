"""A fleet of real workers moves to a cluster to which its topic was copied, and stores each message once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.acceptance.fleets import START_SECONDS, Fleet, refusal, run_until_caught_up
from tests.conftest import eventually
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.timeout(400)


@pytest.mark.long
@pytest.mark.shows("a moved fleet stores each message once on Spark too")
def test_a_fleet_moved_to_a_mirrored_cluster_stores_all_once(make_fleet: Callable[..., Fleet], short_dir: Path) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.send(200)
    run_until_caught_up(fleet)
    before = fleet.config.with_name("kctl.old.toml")
    before.write_text(fleet.config.read_text())
    fleet.send(100)  # and the worker stores these from the copy

    with KafkaBroker(short_dir / "b") as new:
        topics.create_topic(new.bootstrap_servers, fleet.topic, 2)
        topics.produce(new.bootstrap_servers, fleet.topic, {0: 30, 1: 7})
        copy(fleet, new)
        fleet.broker = new
        fleet.set_up(1)
        assert "if the topics were copied there, stop the fleet and run `kctl storage migrate`" in refusal(fleet)

        fleet.kctl("storage", "migrate", "--from", str(before), "--yes")
        fleet.sent.update({TopicPartition(fleet.topic, 0): 30, TopicPartition(fleet.topic, 1): 7})
        fleet.start()
        fleet.send(50)
        eventually(lambda: fleet.is_running("worker-0") and fleet.is_caught_up(), START_SECONDS, "all is committed")
        fleet.stop()

    with closing(fleet.open_storage()) as storage:
        stored = Counter(message.key for block in storage.blocks() for message in block.messages())
    sent = Counter(str(number).encode() for count in (200, 100, 50) for number in range(count))
    assert stored == sent


def copy(fleet: Fleet, new: KafkaBroker) -> None:
    """Copies keys, values and timestamps, as MirrorMaker does."""
    partitions = [TopicPartition(fleet.topic, number) for number in range(2)]
    with (
        closing(KafkaConsumer(bootstrap_servers=fleet.broker.bootstrap_servers)) as consumer,
        closing(KafkaProducer(bootstrap_servers=new.bootstrap_servers)) as producer,
    ):
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        left = sum(consumer.end_offsets(partitions).values())
        while left:
            for tp, records in consumer.poll(timeout_ms=1000).items():
                left -= len(records)
                for each in records:
                    producer.send(
                        tp.topic, each.value, key=each.key, partition=tp.partition, timestamp_ms=each.timestamp
                    )
        producer.flush()
