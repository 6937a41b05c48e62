"""A fleet continues where a killed Spark job ended, after its offsets are committed to the fleet's group."""

import json
import random
import threading
from pathlib import Path

import pytest

from kctl.checkpoints.checkpoint import Checkpoint, place, read
from kctl.errors import CheckpointUnreadable
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.spark_jobs import SparkJobs
from tests.conftest import eventually

pytestmark = pytest.mark.long
PARTITIONS = 2


def checkpoint_of(folder: Path) -> Checkpoint | None:
    try:
        return read(place(str(folder)))
    except CheckpointUnreadable:
        return None


def written_by_job(sink: Path) -> set[tuple[int, int]]:
    rows = set()
    for entry in (each for each in (sink / "_spark_metadata").iterdir() if each.name.isdecimal()):
        for line in entry.read_text().splitlines()[1:]:
            for row in Path(json.loads(line)["path"].removeprefix("file://")).read_text().splitlines():
                rows.add((json.loads(row)["partition"], json.loads(row)["offset"]))
    return rows


def run_and_kill(fleet: Fleet, folder: Path, at: random.Random) -> None:
    with SparkJobs(fleet.broker.bootstrap_servers, folder / "spark.log") as job:
        job.begin(
            folder / "checkpoint",
            [fleet.topic],
            sink="json",
            path=str(folder / "sink"),
            options={"maxOffsetsPerTrigger": "400"},
        )
        batches = at.randint(2, 5)

        def has_run() -> bool:
            found = checkpoint_of(folder / "checkpoint")
            return found is not None and (found.committed or 0) >= batches

        eventually(has_run, START_SECONDS, f"{batches} batches")
        threading.Event().wait(at.random())  # anywhere in a batch
        job.kill()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.shows("a Spark job can be killed at any point and moved into a fleet without missing a message")
def test_no_message_is_missed_between_killed_job_and_fleet(make_fleet: MakeFleet, short_dir: Path, seed: int) -> None:
    fleet = make_fleet(workers=1, partitions=PARTITIONS)
    load = fleet.load(500)
    run_and_kill(fleet, short_dir, random.Random(seed))
    killed = checkpoint_of(short_dir / "checkpoint")
    assert killed is not None

    done = fleet.kctl(
        *("checkpoint", "commit", str(short_dir / "checkpoint"), "-g", fleet.group),
        *("--interval", "0.5", "--yes", "-o", "json"),
    )
    fleet.start("worker-0")
    fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "the fleet is caught up")

    job = written_by_job(short_dir / "sink")
    stored = [(m.partition, m.offset) for block in fleet.open_storage().blocks() for m in block.messages()]
    sent = {(tp.partition, offset) for tp, count in fleet.sent.items() for offset in range(count)}
    repeated = {
        (row["partition"], offset)
        for row in json.loads(done.stdout)["rows"]
        if row["repeated"]
        for offset in range(row["new"], int(row["repeated"].split("-")[1]) + 1)
    }
    assert job | set(stored) == sent
    assert len(stored) == len(set(stored))
    assert job & set(stored) <= repeated
    assert set(stored) == {each for each in sent if each[1] >= killed.offsets[fleet.topic, each[0]]}
