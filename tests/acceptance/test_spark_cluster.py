"""Executors of a Spark cluster, not the driver, write the files of a Delta table, or put messages into a storage."""

import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from deltalake import DeltaTable
from kafka import TopicPartition

from kctl_agent.storage.redis.client import _source
from kctl_agent.worker.query.lake_put import FILE_RECORDS
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.spark_cluster import EXECUTORS, MakeCluster, SparkCluster
from tests.acceptance.tables import Lake, StoredLake, look_after, sent, shows_no_key
from tests.conftest import eventually
from tests.object_store_server import ObjectStoreServer
from tests.processes import command_line
from tests.servers.redis_server import RedisServer, require_redis

StartFleet = Callable[..., Fleet]

TRANSFORM = """\
import steps
from pyspark.sql.functions import udf


def stamped(frame):
    return frame.withColumn("module", udf(steps.place)("offset"))
"""
STEPS = """\
def place(offset):
    return __file__
"""
PLACED = """\
def placed(frame):
    executor = "reflect('java.lang.ProcessHandle', 'current') as executor"
    return frame.selectExpr("topic", "partition", "offset", "spark_partition_id() as task", executor)
"""
SENTENCE_SECONDS = 30.0


@pytest.fixture
def shared(short_dir: Path) -> Path:
    folder = short_dir / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def start(make_fleet: MakeFleet) -> StartFleet:
    def started(cluster: SparkCluster, storage: str, messages: int = 1000, **more: str) -> Fleet:
        fleet = make_fleet(storage=storage, **cluster.settings() | more)
        fleet.send(messages)
        fleet.start()
        return fleet

    return started


def last_error(fleet: Fleet, words: str) -> str | None:
    reported = [str(row.get("last_error") or "") for row in fleet.workers().values()]
    return next((each for each in reported if words in each), None)


def no_executor(fleet: Fleet) -> str:
    found = eventually(lambda: last_error(fleet, "no executor of spark://"), SENTENCE_SECONDS, "it is reported")
    return str(found)


@pytest.mark.shows("the executors of a Spark cluster fill a table, and get the transform's modules")
@pytest.mark.shows(
    "in an object store, too, each message is a row once, and no process list, environment, output or log has its keys"
)
def test_a_cluster_fills_a_table_in_an_object_store_despite_kills(
    make_cluster: MakeCluster, make_fleet: MakeFleet, object_store: ObjectStoreServer
) -> None:
    table, cluster = StoredLake(object_store), make_cluster(workers=0)
    storage = table.settings("maintenance = false")
    fleet = make_fleet(storage=storage, workers_more='transform = "stamping:stamped"', **cluster.settings())
    (fleet.directory / "stamping.py").write_text(TRANSFORM)
    (fleet.directory / "steps.py").write_text(STEPS)
    load = fleet.load(200)
    fleet.start()
    cluster.run("worker-0")  # while the engine starts
    eventually(lambda: any(row["batches_total"] for row in fleet.workers().values()), START_SECONDS, "rows are stored")

    fleet.kill_worker()
    look_after(fleet)
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert table.places() == sent(fleet)
    [module] = set(table.opened().to_pyarrow_table(columns=["module"])["module"].to_pylist())
    assert module.startswith("./spark-modules-"), "an executor imports what Spark has brought into its folder"
    shows_no_key(fleet, table.secret, *cluster.executors())


@pytest.mark.long
@pytest.mark.shows("an executor that comes later and does not share the folder adds nothing to the table")
def test_a_late_executor_without_the_folder_fails(make_cluster: MakeCluster, start: StartFleet, shared: Path) -> None:
    table, cluster = Lake(shared), make_cluster(private=shared)
    os.kill(cluster.pid("worker-1"), signal.SIGSTOP)
    records = 2 * FILE_RECORDS  # a task for each executor
    batches = {"trigger": str(START_SECONDS), "workers_more": f"max_records_per_batch = {records}"}
    fleet = start(cluster, table.settings(), records, **batches)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    os.kill(cluster.pid("worker-1"), signal.SIGCONT)
    eventually(lambda: len(cluster.executors()) == EXECUTORS, START_SECONDS, "the other executor runs")

    def error() -> str | None:
        fleet.send(records)  # the driver may not know that executor yet
        return last_error(fleet, "is not the same folder on")

    eventually(error, START_SECONDS, "the unshared folder is reported")
    stored = table.places()
    assert stored.total() == len(stored)

    os.kill(cluster.pid("worker-1"), signal.SIGTERM)
    eventually(fleet.is_caught_up, 2 * START_SECONDS, "all is committed")
    assert table.places() == sent(fleet)


@pytest.mark.long
@pytest.mark.shows("a cluster that cannot reach the driver is reported within 30 s")
def test_missing_executors_are_reported(make_cluster: MakeCluster, start: StartFleet, shared: Path) -> None:
    # An unused port stands for an address that the cluster's machines cannot reach.
    table, cluster = Lake(shared), make_cluster()
    cluster.conf = cluster.conf.replace('"spark.driver.host" = "127.0.0.1"', '"spark.driver.host" = "127.0.0.2"')
    fleet = start(cluster, table.settings())
    eventually(lambda: fleet.engine().get("state") == "running", START_SECONDS, "the engine runs")

    error = no_executor(fleet)

    assert "(spark.driver.host)" in error
    assert not table.path.exists() or DeltaTable(table.path).count() == 0
    fleet.config.write_text(fleet.config.read_text().replace("127.0.0.2", "127.0.0.1"))
    fleet.kctl("reload")
    fleet.kctl("restart", "--all")
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert table.places() == sent(fleet)


@pytest.mark.long
@pytest.mark.shows("a cluster that has lost all executors is reported within 30 s, and used once there are others")
@pytest.mark.parametrize("engine", ["shared", "own"])
def test_lost_executors_are_reported(engine: str, make_cluster: MakeCluster, start: StartFleet, shared: Path) -> None:
    table, cluster = Lake(shared), make_cluster(workers=1)
    fleet = start(cluster, table.settings(), engine=engine)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    os.kill(cluster.pid("worker-0"), signal.SIGKILL)
    fleet.send(1000)

    no_executor(fleet)
    cluster.run("worker-0")
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert table.places() == sent(fleet)
    assert last_error(fleet, "no executor") is None


@pytest.mark.long
@pytest.mark.shows("a batch has as many tasks as the executors have cores, and a partition stays with its executor")
def test_tasks_follow_cores_and_partitions_stay(make_cluster: MakeCluster, make_fleet: MakeFleet, shared: Path) -> None:
    table, cluster, records = Lake(shared), make_cluster(workers=3), 3 * FILE_RECORDS
    fleet = make_fleet(
        partitions=6,
        storage=table.settings("maintenance = false"),
        trigger=str(START_SECONDS / 3),  # a query that starts takes what is there, and waits so long for the rest
        workers_more=f'transform = "placing:placed"\nmax_records_per_batch = {records}',
        **cluster.settings(),
    )
    (fleet.directory / "placing.py").write_text(PLACED)
    fleet.start("worker-0")

    def batch() -> tuple[int, dict[int, str]]:
        """Returns the number of tasks, and the executor that has read each partition."""
        first = fleet.sent[TopicPartition(fleet.topic, 0)]
        fleet.send(records)
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
        rows = table.opened().to_pyarrow_table(filters=[("offset", ">=", first)])
        return len(set(rows["task"].to_pylist())), dict(
            zip(rows["partition"].to_pylist(), rows["executor"].to_pylist(), strict=True)
        )

    eventually(lambda: batch()[0] == 3, START_SECONDS, "the driver knows three executors")
    before, after = batch(), batch()
    assert before == after
    assert set(after[1].values()) == {str(each.pid) for each in cluster.executors()}

    os.kill(cluster.pid("worker-2"), signal.SIGTERM)

    eventually(lambda: batch()[0] == 2, START_SECONDS, "the driver knows two executors")
    assert table.places() == sent(fleet)


@pytest.mark.long
@pytest.mark.shows("an executor that is decommissioned drains without a failed batch")
def test_a_decommissioned_executor_drains(make_cluster: MakeCluster, start: StartFleet, shared: Path) -> None:
    table, cluster = Lake(shared), make_cluster()
    fleet = start(cluster, table.settings(), spark_conf=cluster.conf + '"spark.decommission.enabled" = "true"\n')
    load = fleet.load(500)
    eventually(lambda: DeltaTable.is_deltatable(str(table.path)), START_SECONDS, "there is a table")
    eventually(lambda: DeltaTable(table.path).version() > 2, START_SECONDS, "batches are stored")

    os.kill(cluster.pid("worker-0"), signal.SIGPWR)

    eventually(lambda: len(cluster.executors()) == 1, SETTLE_SECONDS, "the executor has left")
    version = DeltaTable(table.path).version()
    eventually(lambda: DeltaTable(table.path).version() > version + 2, SETTLE_SECONDS, "batches are stored")
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert table.places() == sent(fleet)
    assert [event for event in fleet.events() if event["kind"] == "query_failed"] == []


@pytest.fixture
def redis_server(short_dir: Path) -> Iterator[RedisServer]:
    require_redis()
    options = ("--slowlog-log-slower-than", "0", "--slowlog-max-len", "1000000")
    with RedisServer(short_dir / "redis", *options) as server:
        yield server


SECRET = "hunter2-of-the-cluster"


def processes_that_put(client: Any) -> set[int]:
    """Finds the connections' names in Redis' log of all commands."""
    put = client.register_script(_source("put")).sha.encode()
    entries = [entry for entry in client.slowlog_get(-1) if put in entry["command"]]
    return {int(entry["client_name"].removeprefix(b"kctl-")) for entry in entries}


@pytest.mark.alone
@pytest.mark.long
@pytest.mark.shows("a Spark cluster with a secret accepts only workers that know it")
def test_executors_of_a_cluster_with_a_secret_store_each_message_once(
    redis_server: RedisServer, make_cluster: MakeCluster, make_fleet: MakeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(secret=SECRET)
    monkeypatch.setenv("KCTL_CLUSTER_SECRET", SECRET)
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

    processes = fleet.family()
    reported = [command_line(each) for each in processes]
    assert any("SparkSubmit" in word for words in reported for word in words)
    assert SECRET not in str(reported)
    assert SECRET not in str([each.environ() for each in processes])
    host, _, port = cluster.url.removeprefix("spark://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as stranger:
        stranger.sendall(struct.pack(">QBQI", 26, 3, 1, 5) + b"hello")  # Spark's frame of an RpcRequest
        assert b"Unknown challenge message" in stranger.recv(65536)
    fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")
    assert fleet.stored_once() > 0
