"""If a storage was restored or failed over, no message is lost silently or stored twice."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from kctl_agent.storage.base import Storage
from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet, moved, run_until_caught_up
from tests.conftest import eventually
from tests.redis_server import require_redis

pytestmark = pytest.mark.timeout(400)


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


@pytest.mark.long
def test_an_older_copy_of_the_storage_is_noticed_and_filled_up(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.send(200)
    assert run_until_caught_up(fleet) == []
    copy(fleet.storage.path, tmp_path / "older.sqlite")
    fleet.send(100)
    fleet.start()
    eventually(lambda: fleet.is_running("worker-0") and fleet.is_caught_up(), START_SECONDS, "all is committed")

    copy(tmp_path / "older.sqlite", fleet.storage.path)  # while the worker has no batch
    lost = [("storage_rolled_back", 0, 150, 100), ("storage_rolled_back", 1, 150, 100)]
    eventually(
        lambda: [event for event in moved(fleet) if event[0] != "query_failed"] == lost, START_SECONDS, "noticed"
    )
    with closing(fleet.open_storage()) as storage:
        eventually(lambda: count(storage) == Counter({0: 150, 1: 150}), START_SECONDS, "read again")
    assert "storage_exchanged" in {event["kind"] for event in fleet.events()}
    fleet.stop()

    assert stored(fleet.storage, 0) == stored(fleet.storage, 1) == list(range(150))
    assert run_until_caught_up(fleet) == [], "it is reported once"
    assert stored(fleet.storage, 0) == list(range(150))


class Pair:
    def __init__(self, directory: Path) -> None:
        self.socket = directory / "r.sock"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.main = self._start(directory / "main", self.socket, "--port", str(port), "--bind", "127.0.0.1")
        self._other = directory / "replica.sock"
        self.replica = self._start(
            directory / "replica", self._other, "--port", "0", "--replicaof", "127.0.0.1", str(port)
        )
        with self.client(self._other) as client:
            eventually(lambda: client.info()["master_link_status"] == "up", 30, "the replica is in sync")

    def _start(self, directory: Path, path: Path, *options: str) -> subprocess.Popen[bytes]:
        directory.mkdir()
        process = subprocess.Popen(
            ["redis-server", "--unixsocket", str(path), "--dir", str(directory), "--save", "", "--appendonly", "yes",
             "--repl-diskless-sync-delay", "0", *options],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        eventually(path.exists, 30, "redis-server answers")
        return process

    def client(self, path: Path) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(path))

    def fall_behind(self) -> None:
        """Stops replication. (After a stop by a signal the replica would find the rest in its socket.)"""
        with self.client(self.socket) as client:
            client.wait(1, 10_000)
        with self.client(self._other) as client:
            client.replicaof("NO", "ONE")

    def fail_over(self) -> None:
        self.main.kill()
        self.main.wait()
        os.rename(self._other, self.socket)

    def close(self) -> None:
        for process in (self.main, self.replica):
            process.kill()
            process.wait()


@pytest.fixture
def pair(short_dir: Path) -> Iterator[Pair]:
    require_redis()
    pair = Pair(short_dir)
    yield pair
    pair.close()


@pytest.mark.long
def test_a_redis_failover_to_an_older_replica_is_made_up_for(make_fleet: MakeFleet, pair: Pair) -> None:
    fleet = make_fleet(workers=1, partitions=2, storage=f'mode = "redis"\nurl = "unix://{pair.socket}"')
    fleet.start()
    fleet.send(200)
    eventually(lambda: fleet.is_running("worker-0") and fleet.is_caught_up(), START_SECONDS, "all is committed")

    pair.fall_behind()
    fleet.send(100)
    eventually(fleet.is_caught_up, START_SECONDS, "the main one has it, and it is committed")
    pair.fail_over()  # and production stops, because a put would notice it, too

    lost = [("storage_rolled_back", 0, 150, 100), ("storage_rolled_back", 1, 150, 100)]
    eventually(
        lambda: [event for event in moved(fleet) if event[0] != "query_failed"] == lost, START_SECONDS, "noticed"
    )
    with closing(fleet.open_storage()) as storage:
        eventually(lambda: count(storage) == Counter({0: 150, 1: 150}), START_SECONDS, "read again")
        assert stored(storage, 0) == stored(storage, 1) == list(range(150))
    assert eventually(lambda: events_total(fleet).get("storage_rolled_back")) == 2


def count(storage: Storage) -> Counter[int]:
    return Counter({each.partition: each.pending for each in storage.stats().partitions})


def events_total(fleet: Fleet) -> dict[str, float]:
    with urllib.request.urlopen(f"{fleet.url()}/metrics") as page:
        lines = page.read().decode().splitlines()
    rows = [line for line in lines if line.startswith("kctl_events_total{")]
    return {row.split('kind="')[1].split('"')[0]: float(row.rsplit(" ", 1)[1]) for row in rows}
