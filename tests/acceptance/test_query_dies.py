"""A query that dies of a record: its cause is named, its restarts are counted, and it heals by itself."""

from __future__ import annotations

import os
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.transforms import POISON
from tests.conftest import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
WHY = "ValueError: the price of order 7 is no number"


@pytest.mark.long
def test_a_query_that_dies_of_a_record_is_begun_again_counted_and_its_cause_is_named(
    make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrected = short_dir / "corrected"
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("KCTL_CHOKES_UNTIL", str(corrected))
    fleet = make_fleet(workers=1, partitions=1, workers_more='transform = "tests.acceptance.transforms:chokes"')
    fleet.start("worker-0")
    fleet.send(10)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what is well is stored and committed")
    pid = fleet.workers()["worker-0"]["pid"]

    fleet.send(1, POISON)
    eventually(lambda: fleet.workers()["worker-0"]["queries_failed"] >= 2, SETTLE_SECONDS, "it was begun again")
    row = fleet.workers()["worker-0"]
    assert re.match(rf"{WHY} \(transforms.py:\d+\); next try in ", row["last_error"])
    [event] = [event for event in row["events"] if event["kind"] == "query_failed"]
    assert event["text"].startswith(f"{WHY} (transforms.py:")
    eventually(lambda: WHY in fleet.kctl("status", exit_code=None).stdout.replace("\n", ""), what="it is shown")
    assert (row["pid"], row["supervisor"]["restarts"]) == (pid, 0), "the query was begun again, not the process"
    eventually(lambda: counted(fleet) >= 2, SETTLE_SECONDS, "it is counted")

    corrected.touch()
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "the cause is gone, and so is the trouble")
    eventually(lambda: fleet.workers()["worker-0"]["last_error"] is None, SETTLE_SECONDS, "no error is shown")
    assert fleet.stored_once() == 11


@pytest.mark.long
def test_a_transform_that_raises_is_called_again_by_the_same_worker(
    make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrected = short_dir / "corrected"
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("KCTL_RAISES_UNTIL", str(corrected))
    fleet = make_fleet(workers=1, partitions=1, workers_more='transform = "tests.acceptance.transforms:raises"')
    fleet.start()
    fleet.send(10)

    def workers() -> list[dict[str, Any]]:
        return list(fleet.workers().values())

    eventually(
        lambda: any("raised KeyError: 'price' (transforms.py:" in (row["last_error"] or "") for row in workers()),
        START_SECONDS,
        "what was raised is shown with its place",
    )
    pid = fleet.workers()["worker-0"]["pid"]

    corrected.touch()
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is stored and committed")
    row = fleet.workers()["worker-0"]
    assert (row["pid"], row["supervisor"]["restarts"], row["last_error"]) == (pid, 0, None)


def counted(fleet: Fleet) -> float:
    with urllib.request.urlopen(f"{fleet.url()}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("kctl_worker_query_failures_total{"))
