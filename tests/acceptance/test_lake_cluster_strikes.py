"""Anything of a Spark cluster is killed or frozen while it fills a table: each message is a row, once, and of the
attempts of a task only the one that Spark has counted is in the table.

`KCTL_TEST_SEED=7` makes another schedule, `KCTL_TEST_STRIKES=10` a shorter one.
"""

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.spark_cluster import SPECULATION, MakeCluster, SparkCluster
from tests.acceptance.tables import Lake, StoredLake, later, sent
from tests.conftest import eventually
from tests.object_store_server import ObjectStoreServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(2400)]

STRIKES = int(os.environ.get("KCTL_TEST_STRIKES", "25"))
KINDS = ("executor", "executor", "Spark worker", "Spark master", "kctl worker", "engine")
FREEZES = 0.4  # the share of SIGSTOPs among the strikes
FREEZE_SECONDS = (1.0, 15.0)
FLOW_SECONDS = 180.0  # until batches are stored again after a strike


@pytest.mark.shows("anything of a Spark cluster is killed or frozen: in a folder and on S3 each message is a row, once")
@pytest.mark.parametrize("place", ["folder", "s3"])
def test_whatever_of_a_cluster_is_killed_or_frozen_each_message_is_a_row_once(
    place: str, make_cluster: MakeCluster, object_store: ObjectStoreServer, make_fleet: MakeFleet, short_dir: Path
) -> None:
    cluster = make_cluster(workers=3)
    table = StoredLake(object_store) if place == "s3" else Lake(short_dir)
    fleet = make_fleet(
        partitions=6,
        **cluster.settings(SPECULATION),
        storage=table.settings("maintenance = false"),
        workers_more="backoff_max_seconds = 0.5",
        trigger="0.0",
    )
    fleet.send(100)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    load = fleet.load(400)
    drawn, struck = random.Random(int(os.environ.get("KCTL_TEST_SEED", "1"))), Counter[str]()
    for _ in range(STRIKES):
        kind, is_freeze = drawn.choice(KINDS), drawn.random() < FREEZES
        wait, freeze = drawn.uniform(0.0, 3.0), drawn.uniform(*FREEZE_SECONDS)
        before = table.opened().version()
        eventually(later(wait), 5, "the moment has come")
        name = strike(kind, cluster, fleet, drawn, freeze if is_freeze else None)
        struck[f"{'frozen' if is_freeze else 'killed'} {kind}"] += 1
        print(f"{time.strftime('%H:%M:%S')} {'frozen' if is_freeze else 'killed'} {kind} {name}", flush=True)
        eventually(lambda: table.opened().version() > before + 1, FLOW_SECONDS, f"batches are stored after {name}")  # noqa: B023
    fleet.finish(load)
    eventually(fleet.is_caught_up, FLOW_SECONDS, "all is committed")

    found = table.places()
    print(f"{dict(struck)}; produced {sent(fleet).total()}, rows {found.total()}")
    assert found == sent(fleet)
    fleet.kctl("storage", "vacuum", "--retention-hours", "0", "--yes")
    assert table.paths() == set(table.opened().get_add_actions().column("path").to_pylist())
    assert table.places() == found


def strike(kind: str, cluster: SparkCluster, fleet: Fleet, drawn: random.Random, freeze: float | None) -> str:
    """`freeze` is in seconds, None kills. Restarts what only a machine's supervisor would."""
    name, pid = victim(kind, cluster, fleet, drawn)
    os.kill(pid, signal.SIGKILL if freeze is None else signal.SIGSTOP)
    if freeze is not None:
        eventually(later(freeze), freeze + 5, "it was frozen for so long")
        with suppress(ProcessLookupError):  # its master has restarted it as hung
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


TRANSFORM = """\
import os, time, uuid
from pyspark import TaskContext
from pyspark.sql.functions import udf

FOLDER = {folder!r}


def drawn(offset):
    attempt = TaskContext.get().attemptNumber()
    if offset == 500 and attempt == 0 and not os.path.exists(FOLDER + "/go"):
        open(FOLDER + "/held", "w").write(str(os.getpid()))
        while not os.path.exists(FOLDER + "/go"):
            time.sleep(0.05)
        open(FOLDER + "/woke", "w").close()
    return f"{{attempt}} {{uuid.uuid4()}}"


def stamped(frame):
    return frame.withColumn("drawn", udf(drawn)("offset"))
"""


def rows(table: Lake) -> dict[tuple[int, int], str]:
    found = table.opened().to_pyarrow_table(columns=["partition", "offset", "drawn"]).to_pylist()
    assert len(found) == len({(row["partition"], row["offset"]) for row in found})
    return {(row["partition"], row["offset"]): row["drawn"] for row in found}


@pytest.mark.shows("a killed task attempt, a speculative one and one that wakes after the commit add no row")
@pytest.mark.parametrize("fate", ["killed", "frozen"])
def test_late_attempts_add_no_row(fate: str, make_cluster: MakeCluster, make_fleet: MakeFleet, short_dir: Path) -> None:
    """Each attempt draws other values. The first stops in the middle of its file until a speculative attempt is done.
    Spark then kills the first one, but cannot while it is frozen."""
    table, cluster = Lake(short_dir), make_cluster()
    fleet = make_fleet(
        partitions=1,
        **cluster.settings(SPECULATION),
        storage=table.settings("maintenance = false"),
        workers_more='transform = "drawing:stamped"',
    )
    (fleet.directory / "drawing.py").write_text(TRANSFORM.format(folder=str(short_dir)))
    fleet.send(1000)
    fleet.start()
    held = short_dir / "held"
    eventually(lambda: held.exists() and held.read_text(), START_SECONDS, "the first attempt stands still")
    executor = cluster.executor_of(int(held.read_text()))
    assert executor is not None
    if fate == "frozen":
        os.kill(executor, signal.SIGSTOP)

    eventually(fleet.is_caught_up, START_SECONDS, "the speculative attempt is committed")
    before = rows(table)
    (short_dir / "go").touch()
    os.kill(executor, signal.SIGCONT)
    if fate == "frozen":
        eventually(lambda: (short_dir / "woke").exists(), SETTLE_SECONDS, "the first attempt goes on")
    fleet.send(1000)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    after = rows(table)
    assert {value.split()[0] for value in before.values()} == {"1"}
    assert {place: after[place] for place in before} == before
    assert table.places() == sent(fleet)
    fleet.kctl("storage", "vacuum", "--retention-hours", "0", "--yes")
    assert table.paths() == set(table.opened().get_add_actions().column("path").to_pylist())
