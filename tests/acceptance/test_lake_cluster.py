"""A Spark cluster fills a Delta table: executors that are not the driver write its files."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.spark_cluster import EXECUTORS, SparkCluster, running_cluster
from tests.acceptance.tables import Lake, Places, places, sent
from tests.conftest import eventually
from tests.object_store_server import ObjectStoreServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

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
SENTENCE_SECONDS = 30.0
"""From the cause to the sentence."""


@pytest.fixture
def cluster(short_dir: Path) -> Iterator[SparkCluster]:
    yield from running_cluster(short_dir / "spark")


@pytest.fixture
def small_cluster(short_dir: Path) -> Iterator[SparkCluster]:
    yield from running_cluster(short_dir / "spark", workers=1)


@pytest.fixture
def shared(short_dir: Path) -> Path:
    """The folder of the table's folder."""
    folder = short_dir / "shared"
    folder.mkdir()
    return folder


@pytest.fixture
def split_cluster(short_dir: Path, shared: Path) -> Iterator[SparkCluster]:
    yield from running_cluster(short_dir / "spark", private=shared)


@pytest.fixture
def server(short_dir: Path) -> Iterator[ObjectStoreServer]:
    with ObjectStoreServer(short_dir / "s3") as running:
        yield running


def last_error(fleet: Fleet, words: str) -> str | None:
    """What a worker reports, if it has these words."""
    reported = [str(row.get("last_error") or "") for row in fleet.workers().values()]
    return next((each for each in reported if words in each), None)


@pytest.mark.shows("the executors of a Spark cluster fill a table in a shared folder, and get the transform's modules")
def test_executors_of_a_cluster_fill_a_table_in_a_shared_folder(
    small_cluster: SparkCluster, make_fleet: MakeFleet, shared: Path
) -> None:
    table = Lake(shared)
    fleet = make_fleet(
        partitions=4,
        spark_master=small_cluster.url,
        spark_conf=small_cluster.conf,
        storage=table.settings(),
        workers_more='transform = "stamping:stamped"',
    )
    (fleet.directory / "stamping.py").write_text(TRANSFORM)
    (fleet.directory / "steps.py").write_text(STEPS)
    fleet.send(1000)
    fleet.start()

    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert table.places() == sent(fleet)
    [module] = set(DeltaTable(table.path).to_pyarrow_table(columns=["module"])["module"].to_pylist())
    assert module.startswith("./spark-modules-"), "an executor imports what Spark has brought into its folder"


@pytest.mark.long
@pytest.mark.shows("a folder that an executor does not share is reported by one sentence, and nothing is stored")
def test_a_folder_that_one_executor_does_not_share_is_reported_and_nothing_is_stored_until_it_is_shared(
    split_cluster: SparkCluster, make_fleet: MakeFleet, shared: Path
) -> None:
    table = Lake(shared)
    fleet = make_fleet(
        partitions=4, spark_master=split_cluster.url, spark_conf=split_cluster.conf, storage=table.settings()
    )
    fleet.send(1000)
    fleet.start()
    error = eventually(
        lambda: last_error(fleet, "is not the same folder on"), START_SECONDS, "the unshared folder is reported"
    )
    assert str(table.path) in error
    assert DeltaTable(table.path).count() == 0

    os.kill(split_cluster.pid("worker-1"), signal.SIGTERM)

    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert table.places() == sent(fleet)


@pytest.mark.long
@pytest.mark.shows("an executor that comes later and does not share the folder adds nothing to the table")
def test_an_executor_that_comes_later_and_does_not_share_the_folder_is_found_by_its_batch(
    split_cluster: SparkCluster, make_fleet: MakeFleet, shared: Path
) -> None:
    table = Lake(shared)
    os.kill(split_cluster.pid("worker-1"), signal.SIGSTOP)
    fleet = make_fleet(
        partitions=4, spark_master=split_cluster.url, spark_conf=split_cluster.conf, storage=table.settings()
    )
    fleet.send(1000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    os.kill(split_cluster.pid("worker-1"), signal.SIGCONT)
    eventually(lambda: len(split_cluster.executors()) == EXECUTORS, START_SECONDS, "the other executor runs")
    load = fleet.load(30_000)
    eventually(lambda: last_error(fleet, "is not the same folder on"), START_SECONDS, "the unshared folder is reported")
    fleet.finish(load)
    stored = table.places()
    assert stored.total() == len(stored)

    os.kill(split_cluster.pid("worker-1"), signal.SIGTERM)
    eventually(fleet.is_caught_up, 2 * START_SECONDS, "all is committed")
    assert table.places() == sent(fleet)


@pytest.mark.long
@pytest.mark.shows("a cluster without free cores, or that cannot reach the driver, is reported within 30 s")
@pytest.mark.parametrize("cause", ["cores", "host"])
def test_a_cluster_that_starts_no_executor_is_reported_within_30_seconds_and_used_once_it_does(
    cause: str, cluster: SparkCluster, make_fleet: MakeFleet, shared: Path
) -> None:
    """A port of nobody stands for an address that the cluster's machines cannot reach."""
    table = Lake(shared)
    conf = cluster.conf
    if cause == "host":
        conf = conf.replace('"spark.driver.host" = "127.0.0.1"', '"spark.driver.host" = "127.0.0.2"')
    else:
        for number in range(EXECUTORS):
            os.kill(cluster.pid(f"worker-{number}"), signal.SIGKILL)
    fleet = make_fleet(partitions=4, spark_master=cluster.url, spark_conf=conf, storage=table.settings())
    fleet.send(1000)
    fleet.start()
    eventually(lambda: fleet.engine().get("state") == "running", START_SECONDS, "the engine runs")

    error = eventually(
        lambda: last_error(fleet, "no executor of spark://"), SENTENCE_SECONDS, "it is reported that there is none"
    )

    assert "(spark.driver.host)" in error
    assert not table.path.exists() or DeltaTable(table.path).count() == 0
    if cause == "host":
        fleet.config.write_text(fleet.config.read_text().replace("127.0.0.2", "127.0.0.1"))
        fleet.kctl("reload")
        fleet.kctl("restart", "--all")
    else:
        cluster.run("worker-0")
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert table.places() == sent(fleet)


@pytest.mark.long
@pytest.mark.shows("an executor that is decommissioned drains without a failed batch")
def test_an_executor_that_is_decommissioned_drains_without_a_failed_batch(
    cluster: SparkCluster, make_fleet: MakeFleet, shared: Path
) -> None:
    table = Lake(shared)
    conf = cluster.conf + '"spark.decommission.enabled" = "true"\n'
    fleet = make_fleet(partitions=4, spark_master=cluster.url, spark_conf=conf, storage=table.settings())
    fleet.start()
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


@pytest.mark.long
@pytest.mark.shows("the keys of an object store reach executors, and no process list, environment or log")
def test_keys_of_an_object_store_reach_executors_and_are_shown_nowhere(
    cluster: SparkCluster, make_fleet: MakeFleet, server: ObjectStoreServer
) -> None:
    wrong = server.credentials("another-secret")
    fleet = make_fleet(
        partitions=4, spark_master=cluster.url, spark_conf=cluster.conf, storage=storage_of(server, wrong)
    )
    fleet.send(1000)
    fleet.start()
    eventually(lambda: last_error(fleet, "refuses these keys"), SENTENCE_SECONDS, "the wrong key is reported")
    fleet.config.write_text(fleet.config.read_text().replace(str(wrong), str(server.credentials())))
    fleet.kctl("reload")
    fleet.kctl("restart", "--all")
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert places_of(server) == sent(fleet)
    assert server.keys is not None
    processes = [*fleet.family(), *cluster.executors()]
    shown = [*(" ".join(each.cmdline()) for each in processes), *(str(each.environ()) for each in processes)]
    files = [file for file in cluster.directory.rglob("*") if file.is_file() and file.suffix != ".jar"]
    shown += [file.read_text(errors="replace") for file in files]
    assert len(cluster.executors()) == EXECUTORS
    assert not [text[:200] for text in shown if server.keys.secret in text]


def storage_of(server: ObjectStoreServer, credentials: Path) -> str:
    given = server.settings(credentials_file=str(credentials))
    return "\n".join(
        ['mode = "lake"', *(f'{name} = "{given[name]}"' for name in ("uri", "endpoint", "credentials_file"))]
    )


def table_of(server: ObjectStoreServer) -> DeltaTable:
    folder = server.folder("orders")
    return DeltaTable(folder.uri, storage_options=folder.options)


def places_of(server: ObjectStoreServer) -> Places:
    return places(table_of(server))
