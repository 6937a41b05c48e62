"""A record that cannot be read stops its own partition and no other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, Fleet, MakeFleet
from tests.acceptance.transforms import POISON
from tests.conftest import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
WHY = "ValueError: the price of order 7 is no number (transforms.py:131)"
BAD, GOOD = 2, (0, 1, 3)


@pytest.mark.long
def test_the_partition_of_a_record_that_fails_is_isolated_while_the_others_are_read(
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
    row = eventually(lambda: isolated(fleet), 180, "it is isolated")
    assert row["isolated"] == [{"topic": fleet.topic, "partition": BAD, "why": WHY}]
    assert [event["partition"] for event in row["events"] if event["kind"] == "partition_isolated"] == [BAD]
    eventually(lambda: fleet.has_committed(*GOOD), SETTLE_SECONDS, "the others are stored and committed")
    fleet.send_to(*GOOD)
    eventually(lambda: fleet.has_committed(*GOOD), SETTLE_SECONDS, "they go on being read")

    corrected.touch()
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it is read")
    eventually(lambda: fleet.workers()["worker-0"]["isolated"] == [], SETTLE_SECONDS, "it is isolated no more")
    assert fleet.workers()["worker-0"]["pid"] == pid, "the process was not started again"
    fleet.stored_once()


def isolated(fleet: Fleet) -> dict[str, Any] | None:
    fleet.check()
    row = fleet.workers().get("worker-0", {})
    return row if row.get("isolated") else None
