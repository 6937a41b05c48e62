"""If a storage was restored or failed over, or its fleet has moved, no message is lost silently or stored twice."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kctl.demo.kafka_broker import free_ports
from kctl_agent.storage.base import Storage
from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet, moved, refusal, run_until_caught_up
from tests.conftest import eventually
from tests.redis_server import require_redis
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.redis_server import RedisServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def stored(storage: Storage, partition: int) -> list[int]:
    return sorted(r.offset for block in storage.blocks() if block.partition == partition for r in block.messages())


def copy(source: Path, target: Path) -> None:
    """The copy is complete at any time, as docs/storage.md promises."""
    copied = target.with_suffix(".copied")
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(copied)) as new:
        old.backup(new)
    for name in (Path(f"{target}-wal"), Path(f"{target}-shm")):
        name.unlink(missing_ok=True)
    os.rename(copied, target)


def test_an_older_copy_of_the_storage_is_noticed_and_filled_up(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.send(200)
    assert run_until_caught_up(fleet) == []
    copy(fleet.storage.path, tmp_path / "older.sqlite")
    fleet.send(100)
    fleet.start()
    eventually(lambda: fleet.is_running("worker-0") and fleet.is_caught_up(), START_SECONDS, "all is committed")

    copy(tmp_path / "older.sqlite", fleet.storage.path)  # while the worker has no batch
    is_made_up_for(fleet)
    assert "storage_exchanged" in {event["kind"] for event in fleet.events()}
    fleet.stop()

    assert run_until_caught_up(fleet) == [], "it is reported once"
    assert stored(fleet.storage, 0) == list(range(150))


def test_a_redis_failover_to_an_older_replica_is_made_up_for(make_fleet: MakeFleet, short_dir: Path) -> None:
    require_redis()
    [port] = map(str, free_ports(1))
    main = RedisServer(short_dir / "main", "--port", port, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
    replica = RedisServer(short_dir / "replica", "--replicaof", "127.0.0.1", port)
    with main, replica, main.client() as of_main, replica.client() as of_replica:
        eventually(lambda: of_replica.info()["master_link_status"] == "up", 30, "the replica is in sync")
        fleet = make_fleet(workers=1, partitions=2, storage=f'mode = "redis"\nurl = "{main.url}"')
        fleet.start()
        fleet.send(200)
        eventually(lambda: fleet.is_running("worker-0") and fleet.is_caught_up(), START_SECONDS, "all is committed")

        of_main.wait(1, 10_000)
        of_replica.replicaof("NO", "ONE")
        fleet.send(100)
        eventually(fleet.is_caught_up, START_SECONDS, "the main one has it, and it is committed")
        main.kill()  # and production stops, because a put would notice it, too
        replica.socket.rename(main.socket)

        is_made_up_for(fleet)
        fleet.stop()


def is_made_up_for(fleet: Fleet) -> None:
    lost = [("storage_rolled_back", 0, 150, 100), ("storage_rolled_back", 1, 150, 100)]
    eventually(
        lambda: [event for event in moved(fleet) if event[0] != "query_failed"] == lost, START_SECONDS, "noticed"
    )
    with closing(fleet.open_storage()) as storage:
        eventually(lambda: count(storage) == Counter({0: 150, 1: 150}), START_SECONDS, "read again")
        assert stored(storage, 0) == stored(storage, 1) == list(range(150))


def count(storage: Storage) -> Counter[int]:
    return Counter({each.partition: each.pending for each in storage.stats().partitions})


@pytest.mark.shows("a moved fleet stores each message once on Spark too")
def test_a_fleet_moved_to_a_mirrored_cluster_stores_all_once(make_fleet: MakeFleet, short_dir: Path) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.send(200)
    run_until_caught_up(fleet)
    before = fleet.config.with_name("kctl.old.toml")
    before.write_text(fleet.config.read_text())
    fleet.send(100)  # and the worker stores these from the copy

    with KafkaBroker(short_dir / "b") as new:
        topics.create_topic(new.bootstrap_servers, fleet.topic, 2)
        topics.produce(new.bootstrap_servers, fleet.topic, {0: 30, 1: 7})
        mirror(fleet, new)
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


def mirror(fleet: Fleet, new: KafkaBroker) -> None:
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
