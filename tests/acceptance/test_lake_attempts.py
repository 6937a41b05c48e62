"""Task attempts on a Spark cluster: only the one that Spark has counted is in the table, whatever the others do."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, MakeFleet
from tests.acceptance.spark_cluster import SPECULATION, MakeCluster
from tests.acceptance.tables import Lake, sent
from tests.conftest import eventually

pytestmark = pytest.mark.long

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
    """Each attempt draws other values. The first stops in the middle of its file until a speculative one is done; Spark
    then kills it, but cannot while it is frozen."""
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
