"""Records that cannot be read: each stops its own partition, however many partitions have one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, Fleet, MakeFleet
from tests.acceptance.transforms import POISON
from tests.conftest import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
WHY = "ValueError: the price of order 7 is no number (transforms.py:131)"
READ_SECONDS = 90.0


def isolated(fleet: Fleet) -> list[dict[str, Any]]:
    fleet.check()
    return fleet.workers().get("worker-0", {}).get("isolated") or []


@pytest.mark.shows("a record that cannot be read stops its own partition, however many partitions have one")
@pytest.mark.parametrize(
    ("partitions", "bad"),
    [(40, 8), *(pytest.param(*each, marks=pytest.mark.long) for each in ((40, 10), (40, 20), (100, 12)))],
)
def test_good_partitions_are_read_within_90_seconds_and_each_bad_one_is_named_until_its_record_is_stepped_over(
    make_fleet: MakeFleet, short_dir: Path, monkeypatch: pytest.MonkeyPatch, partitions: int, bad: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("KCTL_CHOKES_UNTIL", str(short_dir / "never"))
    fleet = make_fleet(
        workers=1, partitions=partitions, workers_more='transform = "tests.acceptance.transforms:chokes"'
    )
    fleet.start("worker-0")
    fleet.send(2 * partitions)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "what is good is stored and committed")
    poisoned = [number * partitions // bad for number in range(bad)]
    good = [number for number in range(partitions) if number not in poisoned]

    fleet.send_to(*range(partitions))
    fleet.send_to(*poisoned, value=POISON)
    fleet.send_to(*range(partitions))
    began = time.monotonic()
    eventually(lambda: fleet.has_committed(*good), READ_SECONDS, "every good partition is read again")
    print(f"{partitions} partitions, {bad} bad: good ones after {time.monotonic() - began:.1f} s")
    expected = [{"topic": fleet.topic, "partition": each, "why": WHY, "offset": 3} for each in poisoned]
    eventually(lambda: isolated(fleet) == expected, 2 * READ_SECONDS, "each bad one is named")
    print(f"all isolated after {time.monotonic() - began:.1f} s")
    fleet.send_to(*good)
    eventually(lambda: fleet.has_committed(*good), SETTLE_SECONDS, "good ones are read while bad ones are retried")

    began = time.monotonic()
    for each in poisoned:
        fleet.kctl("seek", "--topic", fleet.topic, "--partition", str(each), "--to", "4", "--yes")
    print(f"seeks {time.monotonic() - began:.1f} s")
    eventually(fleet.is_caught_up, READ_SECONDS, "the others are read too")
    eventually(lambda: isolated(fleet) == [], SETTLE_SECONDS, "none is isolated")
    assert fleet.audit().stored == fleet.sent.total() - bad
