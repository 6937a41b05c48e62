"""On a Spark cluster messages go from the executors into the storage, not through the driver."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kctl_agent.storage.redis.client import _source
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, MakeFleet
from tests.acceptance.spark_cluster import EXECUTORS, MakeCluster
from tests.conftest import eventually
from tests.processes import command_line
from tests.redis_server import require_redis
from tests.servers.redis_server import RedisServer


@pytest.fixture
def redis_server(short_dir: Path) -> Iterator[RedisServer]:
    require_redis()
    options = ("--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000")
    with RedisServer(short_dir / "redis", *options) as server:
        yield server


SECRET = "hunter2-of-the-cluster"


def processes_that_put(client: Any) -> set[int]:
    """Processes that have sent a put, by their connections' names in Redis' log of all commands."""
    put = client.register_script(_source("put")).sha.encode()
    entries = [entry for entry in client.slowlog_get(-1) if put in entry["command"]]
    return {int(entry["client_name"].removeprefix(b"kctl-")) for entry in entries}


@pytest.mark.alone
@pytest.mark.long
def test_executors_store_each_once(redis_server: RedisServer, make_cluster: MakeCluster, make_fleet: MakeFleet) -> None:
    cluster = make_cluster()
    fleet = make_fleet(partitions=4, **cluster.settings(), storage=f'mode = "redis"\nurl = "{redis_server.url}"')
    fleet.start("worker-0")
    load = fleet.load(rate=2000)

    driver = fleet.workers()["worker-0"]["pid"]
    with redis_server.client() as client:

        def executors() -> set[int | None]:
            return {cluster.executor_of(pid) for pid in processes_that_put(client)}

        eventually(lambda: len(executors() - {None}) == EXECUTORS, START_SECONDS, "every executor puts")
        strangers = [pid for pid in processes_that_put(client) if cluster.executor_of(pid) is None]
        assert not any(map(psutil.pid_exists, strangers)), "a process puts that belongs to no executor"
        assert driver not in processes_that_put(client)

    fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")
    assert fleet.stored_once() > 0


@pytest.mark.shows("a Spark cluster with a secret accepts only workers that know it")
@pytest.mark.long
def test_a_cluster_with_a_secret_takes_the_worker_that_knows_it_encrypted_and_no_stranger(
    redis_server: RedisServer, make_cluster: MakeCluster, make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(secret=SECRET)
    monkeypatch.setenv("KCTL_CLUSTER_SECRET", SECRET)
    fleet = make_fleet(partitions=2, **cluster.settings(), storage=f'mode = "redis"\nurl = "{redis_server.url}"')
    fleet.start("worker-0")
    fleet.send(100)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")

    assert fleet.stored_once() == 100
    processes = fleet.family()
    reported = [command_line(each) for each in processes]
    assert any("SparkSubmit" in word for words in reported for word in words)
    assert SECRET not in str(reported)
    assert SECRET not in str([each.environ() for each in processes])
    host, _, port = cluster.url.removeprefix("spark://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        stranger.sendall(struct.pack(">QBQI", 26, 3, 1, 5) + b"hello")  # Spark's frame of an RpcRequest
        assert b"Unknown challenge message" in stranger.recv(65536)
