"""A task that reads partitions of which one has nearly everything and most have nothing stores each record once."""

from __future__ import annotations

import os
import signal

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

PARTITIONS, LARGE, SMALL = 40, 7, range(20, 30)
LARGE_COUNT, SMALL_COUNT = 19_000, 100


@pytest.mark.shows("of 40 partitions one has 95 % of the records")
def test_a_partition_with_nearly_all_records_is_stored_once_beside_small_and_empty_ones(
    make_fleet: MakeFleet,
) -> None:
    fleet = make_fleet(workers=1, partitions=PARTITIONS, workers_more="max_records_per_batch = 5000")
    fleet.send_to(LARGE, count=LARGE_COUNT)
    fleet.send_to(*SMALL, count=SMALL_COUNT)
    fleet.start()
    eventually(lambda: committed(fleet, LARGE), START_SECONDS, "a batch of the large one is committed")
    pid = fleet.workers()["worker-0"]["pid"]
    os.kill(pid, signal.SIGKILL)

    eventually(lambda: fleet.workers().get("worker-0", {}).get("pid") not in (None, pid), START_SECONDS, "another runs")
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")
    fleet.send_to(*range(PARTITIONS), count=SMALL_COUNT)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "so is what comes in all of them")
    fleet.stored_once()


def committed(fleet: Fleet, partition: int) -> bool:
    fleet.check()
    row = fleet.offsets().get(partition)
    return row is not None and bool(row["current_offset"])
