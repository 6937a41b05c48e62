"""Anything of a Spark cluster is killed or frozen while it fills a table: each message is a row, once.

`KCTL_TEST_SEED=7` makes another schedule, `KCTL_TEST_STRIKES=10` a shorter one.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from tests.acceptance import tables
from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet
from tests.acceptance.spark_cluster import SPECULATION, SparkCluster, running_cluster
from tests.acceptance.tables import later, sent
from tests.conftest import eventually
from tests.object_store_server import ObjectStoreServer

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(2400)]

STRIKES = int(os.environ.get("KCTL_TEST_STRIKES", "25"))
KINDS = ("executor", "executor", "Spark worker", "Spark master", "kctl worker", "engine")
FREEZES = 0.4
"""This part of the strikes is a SIGSTOP; the others are a SIGKILL."""
FREEZE_SECONDS = (1.0, 15.0)
FLOW_SECONDS = 180.0
"""Until batches are stored again after a strike."""


@pytest.fixture
def cluster(short_dir: Path) -> Iterator[SparkCluster]:
    yield from running_cluster(short_dir / "spark", workers=3)


@pytest.fixture
def server(short_dir: Path) -> Iterator[ObjectStoreServer]:
    with ObjectStoreServer(short_dir / "s3") as running:
        yield running


@pytest.mark.shows("anything of a Spark cluster is killed or frozen: in a folder and on S3 each message is a row, once")
@pytest.mark.parametrize("place", ["folder", "s3"])
def test_whatever_of_a_cluster_is_killed_or_frozen_each_message_is_a_row_once(
    place: str, cluster: SparkCluster, server: ObjectStoreServer, make_fleet: MakeFleet, short_dir: Path
) -> None:
    given = server.settings()
    names = ("uri", "endpoint", "credentials_file")
    folder = short_dir / "orders"
    storage = [f'{name} = "{given[name]}"' for name in names] if place == "s3" else [f'uri = "{folder.as_uri()}"']
    fleet = make_fleet(
        partitions=6,
        spark_master=cluster.url,
        spark_conf=cluster.conf + SPECULATION,
        storage="\n".join(['mode = "lake"', "maintenance = false", *storage]),
        workers_more="backoff_max_seconds = 0.5",
        trigger="0.0",
    )

    def table() -> DeltaTable:
        at = server.folder()
        return DeltaTable(at.uri, storage_options=at.options) if place == "s3" else DeltaTable(folder)

    fleet.send(100)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    load = fleet.load(400)
    drawn, struck = random.Random(int(os.environ.get("KCTL_TEST_SEED", "1"))), Counter[str]()
    for _ in range(STRIKES):
        kind, is_freeze = drawn.choice(KINDS), drawn.random() < FREEZES
        wait, freeze = drawn.uniform(0.0, 3.0), drawn.uniform(*FREEZE_SECONDS)
        before = table().version()
        eventually(later(wait), 5, "the moment has come")
        name = strike(kind, cluster, fleet, drawn, freeze if is_freeze else None)
        struck[f"{'frozen' if is_freeze else 'killed'} {kind}"] += 1
        print(f"{time.strftime('%H:%M:%S')} {'frozen' if is_freeze else 'killed'} {kind} {name}", flush=True)
        eventually(lambda: table().version() > before + 1, FLOW_SECONDS, f"batches are stored after {name}")  # noqa: B023
    fleet.finish(load)
    eventually(fleet.is_caught_up, FLOW_SECONDS, "all is committed")

    found = tables.places(table())
    print(f"{dict(struck)}; produced {sent(fleet).total()}, rows {found.total()}")
    assert found == sent(fleet)
    fleet.kctl("storage", "vacuum", "--retention-hours", "0", "--yes")
    kept = set(table().get_add_actions().column("path").to_pylist())
    here = server.folder().files() if place == "s3" else fleet.open_lake().folder.files()
    assert {file.name for file in here if file.name.startswith("kctl-")} == kept
    assert tables.places(table()) == found


def strike(kind: str, cluster: SparkCluster, fleet: Fleet, drawn: random.Random, freeze: float | None) -> str:
    """Kills a part of this kind, or freezes it for so many seconds; starts again what only a machine's own supervisor
    would."""
    name, pid = victim(kind, cluster, fleet, drawn)
    os.kill(pid, signal.SIGKILL if freeze is None else signal.SIGSTOP)
    if freeze is not None:
        eventually(later(freeze), freeze + 5, "it was frozen for so long")
        with suppress(ProcessLookupError):  # its master has taken it for one that hangs
            os.kill(pid, signal.SIGCONT)
    elif name in cluster.names:
        psutil.wait_procs([psutil.Process(pid)], 10)
        cluster.run(name)
    return name


def victim(kind: str, cluster: SparkCluster, fleet: Fleet, drawn: random.Random) -> tuple[str, int]:
    match kind:
        case "executor":
            found = eventually(cluster.executors, START_SECONDS, "an executor runs")
            pid = drawn.choice(sorted(each.pid for each in found))
            return f"executor {pid}", pid
        case "Spark worker":
            name = drawn.choice(sorted(name for name in cluster.names if name != "master"))
            return name, cluster.pid(name)
        case "Spark master":
            return "master", cluster.pid("master")
        case "engine":
            return kind, eventually(lambda: fleet.engine().get("pid"), START_SECONDS, "the engine runs")
    return kind, eventually(lambda: fleet.workers()["worker-0"]["pid"], START_SECONDS, "the worker runs")
