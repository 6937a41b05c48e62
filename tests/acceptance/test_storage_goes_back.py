"""If a storage was restored or failed over while the fleet runs, this is noticed, and the storage is filled up."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kctl.demo.kafka_broker import free_ports
from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.servers.redis_server import RedisServer, require_redis

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def copy(source: Path, target: Path) -> None:
    """The copy is complete at any time, as docs/storage.md promises."""
    copied = target.with_suffix(".copied")
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(copied)) as new:
        old.backup(new)
    for name in (Path(f"{target}-wal"), Path(f"{target}-shm")):
        name.unlink(missing_ok=True)
    os.rename(copied, target)


def moved(fleet: Fleet) -> list[tuple[str, int, int, int]]:
    events = [event for event in fleet.events() if event["partition"] is not None and event["kind"] != "query_failed"]
    return sorted((event["kind"], event["partition"], event["from"], event["to"]) for event in events)


def test_an_older_copy_of_the_storage_is_noticed_and_filled_up(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.send(200)
    fleet.start("worker-0")
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    copy(fleet.storage.path, tmp_path / "older.sqlite")
    fleet.send(100)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    copy(tmp_path / "older.sqlite", fleet.storage.path)  # while the worker has no batch
    is_made_up_for(fleet)
    assert "storage_exchanged" in {event["kind"] for event in fleet.events()}
    fleet.stop()

    fleet.start("worker-0")
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert moved(fleet) == [], "it is reported once"
    fleet.stored_once()


def test_a_redis_failover_to_an_older_replica_is_made_up_for(make_fleet: MakeFleet, short_dir: Path) -> None:
    require_redis()
    [port] = map(str, free_ports(1))
    main = RedisServer(short_dir / "main", "--port", port, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0")
    replica = RedisServer(short_dir / "replica", "--replicaof", "127.0.0.1", port)
    with main, replica, main.client() as of_main, replica.client() as of_replica:
        eventually(lambda: of_replica.info()["master_link_status"] == "up", 30, "the replica is in sync")
        fleet = make_fleet(workers=1, partitions=2, storage=f'mode = "redis"\nurl = "{main.url}"')
        fleet.send(200)
        fleet.start("worker-0")
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

        of_main.wait(1, 10_000)
        of_replica.replicaof("NO", "ONE")
        fleet.send(100)
        eventually(fleet.is_caught_up, START_SECONDS, "the main one has it, and it is committed")
        main.kill()  # and production stops, because a put would notice it, too
        replica.socket.rename(main.socket)

        is_made_up_for(fleet)
        fleet.stored_once()
        fleet.stop()


def is_made_up_for(fleet: Fleet) -> None:
    lost = [("storage_rolled_back", 0, 150, 100), ("storage_rolled_back", 1, 150, 100)]
    eventually(lambda: moved(fleet) == lost, START_SECONDS, "it is noticed")
    eventually(lambda: fleet.audit().stored == 300, START_SECONDS, "the lost messages are read again")
