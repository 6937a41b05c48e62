"""A worker that freezes at any step of a query's start or of a batch, for longer than its session, while another takes
over, loses and doubles no message."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.stepping_worker import STEPS
from tests.conftest import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

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


def committed(fleet: Fleet) -> list[int]:
    return [row["current_offset"] or 0 for _, row in sorted(fleet.offsets().items())]


@contextmanager
def joining(fleet: Fleet, name: str, step: str) -> Iterator[subprocess.Popen[bytes]]:
    """A second worker that joins, freezes at this step for longer than its session, and is evicted. It continues and
    takes part again when this ends."""
    process = fleet.attach(name, (sys.executable, str(SCRIPT), step))
    try:
        eventually(lambda: is_frozen(process), START_SECONDS, f"{name} has come to the step: {step}")
        eventually(lambda: fleet.owners() == {"worker-0"}, START_SECONDS, "worker-0 reads everything")
        before = committed(fleet)
        eventually(lambda: all(now > then for then, now in zip(before, committed(fleet), strict=True)), START_SECONDS)
        yield process
    finally:
        thaw(process)
    eventually(lambda: fleet.owners() == {"worker-0", name}, START_SECONDS, f"{name} reads again")


def test_a_worker_frozen_at_any_step_loses_nothing_and_stores_nothing_twice(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.start("worker-0")
    load = fleet.load(500)

    for number, step in enumerate(STEPS):
        with joining(fleet, f"frozen-{number}", step) as process:
            pass
        assert process.stdin is not None
        process.stdin.close()
        process.wait(SETTLE_SECONDS)
        eventually(lambda: fleet.owners() == {"worker-0"}, START_SECONDS, f"frozen-{number} has left")

    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    fleet.stored_once()
