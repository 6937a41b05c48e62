"""A worker is frozen for longer than its session, at each step of starting a query and of a batch, while another one
takes over: no message is lost or stored twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.stepping_worker import STEPS
from tests.conftest import eventually

SCRIPT = Path(__file__).with_name("stepping_worker.py")


def is_frozen(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "it has ended"
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


def thaw(process: subprocess.Popen[bytes]) -> None:
    for each in psutil.process_iter():
        try:
            if os.getsid(each.pid) == process.pid:
                each.resume()
        except (psutil.Error, ProcessLookupError):
            continue


def run_frozen_at(step: str, fleet: Fleet, name: str) -> None:
    """A second worker joins, freezes, is evicted, continues, takes part again, and leaves."""
    process = fleet.attach(name, (sys.executable, str(SCRIPT), step))
    try:
        eventually(lambda: is_frozen(process), START_SECONDS, f"{name} has come to the step: {step}")
        eventually(lambda: fleet.owners() == {"worker-0"}, START_SECONDS, "worker-0 reads everything")
        before = committed(fleet)
        eventually(lambda: all(now > then for then, now in zip(before, committed(fleet), strict=True)), START_SECONDS)
    finally:
        thaw(process)
    eventually(lambda: fleet.owners() == {"worker-0", name}, START_SECONDS, f"{name} reads again")
    assert process.stdin is not None
    process.stdin.close()
    process.wait(SETTLE_SECONDS)
    eventually(lambda: fleet.owners() == {"worker-0"}, START_SECONDS, f"{name} has left")


def committed(fleet: Fleet) -> list[int]:
    return [row["current_offset"] or 0 for _, row in sorted(fleet.offsets().items())]


def check(steps: list[str], fleet: Fleet) -> None:
    fleet.start("worker-0")
    load = fleet.load(500)

    for number, step in enumerate(steps):
        run_frozen_at(step, fleet, f"frozen-{number}")

    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    fleet.stop()
    assert fleet.stored_once() > 0


def test_a_worker_frozen_before_it_reads_loses_nothing_and_stores_nothing_twice(make_fleet: MakeFleet) -> None:
    check(["the committed offsets are read"], make_fleet(workers=1, partitions=2))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_worker_frozen_at_any_step_loses_nothing_and_stores_nothing_twice(make_fleet: MakeFleet) -> None:
    check(list(STEPS), make_fleet(workers=1, partitions=2))
