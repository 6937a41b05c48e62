"""If a record ends a query, its cause is reported, its restarts are counted, and it recovers by itself."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.transforms import POISON
from tests.conftest import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
WHY = "ValueError: the price of order 7 is no number (transforms.py:131)"
BAD, GOOD = 2, (0, 1, 3)


@pytest.mark.shows("a record that cannot be read stops its own partition and no other")
@pytest.mark.long
def test_a_query_that_dies_of_a_record_is_begun_again_its_cause_is_named_and_its_partition_is_isolated(
    make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrected = short_dir / "corrected"
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("KCTL_CHOKES_UNTIL", str(corrected))
    fleet = make_fleet(workers=1, partitions=4, workers_more='transform = "tests.acceptance.transforms:chokes"')
    fleet.start("worker-0")
    fleet.send(40)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what is well is stored and committed")
    pid = fleet.workers()["worker-0"]["pid"]

    fleet.send_to(BAD, value=POISON)
    fleet.send_to(*GOOD)
    eventually(lambda: (of_worker(fleet).get("queries_failed") or 0) >= 2, SETTLE_SECONDS, "it was begun again")
    row = eventually(lambda: WHY in ((row := of_worker(fleet)).get("last_error") or "") and row, what="it is named")
    assert {event["text"][: len(WHY)] for event in row["events"] if event["kind"] == "query_failed"} == {WHY}
    sentence = WHY.partition(" (")[0]
    eventually(lambda: sentence in fleet.kctl("status", exit_code=None).stdout.replace("\n", ""), what="it is shown")
    eventually(lambda: counted(fleet) >= 2, SETTLE_SECONDS, "it is counted")

    row = eventually(lambda: (found := of_worker(fleet)).get("isolated") and found, 180, "it is isolated")
    assert row["isolated"] == [{"topic": fleet.topic, "partition": BAD, "why": WHY, "offset": 10}]
    assert [event["partition"] for event in row["events"] if event["kind"] == "partition_isolated"] == [BAD]
    for _ in range(2):
        eventually(lambda: fleet.has_committed(*GOOD), SETTLE_SECONDS, "the others are stored and committed")
        fleet.send_to(*GOOD)

    corrected.touch()
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it is read")
    eventually(lambda: of_worker(fleet)["isolated"] == [], SETTLE_SECONDS, "it is isolated no more")
    eventually(lambda: of_worker(fleet)["last_error"] is None, SETTLE_SECONDS, "no error is shown")
    row = of_worker(fleet)
    assert (row["pid"], row["supervisor"]["restarts"]) == (pid, 0), "queries were begun again, not the process"
    fleet.stored_once()


def of_worker(fleet: Fleet) -> dict[str, Any]:
    fleet.check()
    return fleet.workers().get("worker-0", {})


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
