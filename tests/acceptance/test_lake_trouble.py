"""With a table that cannot be written, or that several fleets write, no row is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.tables import Lake, lake, places, sent
from tests.conftest import eventually

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(400)]

SMALL = "size=8m,mode=755"


@pytest.fixture
def disk(short_dir: Path) -> Iterator[Path]:
    """A small one, for a table."""
    if os.geteuid() != 0:
        pytest.skip("mounts a file system: needs root")
    place = short_dir / "disk"
    place.mkdir()
    if not mount(place):
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "--recursive", str(place)], check=True)


def mount(place: Path) -> bool:
    return (
        subprocess.run(["mount", "-t", "tmpfs", "-o", SMALL, "none", str(place)], capture_output=True).returncode == 0
    )


def move_to_its_own_disk(folder: Path) -> None:
    """What nobody writes to at the time."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert mount(folder)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def fill(disk: Path, free_bytes: int) -> Path:
    """Leave so much of it; returns the file that has the rest."""
    filler, room = disk / "filler", os.statvfs(disk)
    filler.write_bytes(bytes(max(room.f_bavail * room.f_frsize - free_bytes, 0)))
    return filler


def stored(fleet: Fleet) -> int:
    return sum(row["current_offset"] or 0 for row in fleet.offsets().values())


@pytest.mark.parametrize(
    ("place", "free_bytes"), [("", 0), ("", 32 << 10), ("_delta_log", 0)], ids=["plan", "files", "commit"]
)
def test_a_full_disk_is_reported_and_waited_out(place: str, free_bytes: int, disk: Path, make_fleet: MakeFleet) -> None:
    table = disk / "orders"
    fleet = make_fleet(partitions=2, storage=lake(table, 'min_free = ""\nmaintenance = false'))
    fleet.send(1000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    pid = fleet.workers()["worker-0"]["pid"]

    if place:
        move_to_its_own_disk(table / place)
    filler = fill(table / place, free_bytes)
    fleet.send(20_000)
    eventually(lambda: is_full(fleet), SETTLE_SECONDS, "the full disk is reported")
    assert stored(fleet) == 1000
    eventually(lambda: "disk" in fleet.kctl("status", exit_code=None).stdout, what="by kctl status too")
    filler.unlink()
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "there is room, and everything is stored and committed")

    eventually(lambda: fleet.workers()["worker-0"]["last_error"] is None, SETTLE_SECONDS, "the error is overcome")
    assert fleet.workers()["worker-0"]["pid"] == pid, "no worker had to be started again"
    assert places(table) == sent(fleet)


def is_full(fleet: Fleet) -> str:
    error = fleet.workers()["worker-0"]["last_error"] or ""
    return error if "No space left" in error or "disk is full" in error else ""


def test_two_fleets_fill_one_table_while_their_workers_are_killed(make_fleet: MakeFleet, short_dir: Path) -> None:
    drawn = random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    table = Lake(short_dir)
    fleets = [make_fleet(partitions=2, workers=2, storage=table.settings()) for _ in range(2)]
    for fleet in fleets:
        fleet.start()
    for fleet in fleets:
        eventually(lambda: fleet.is_running("worker-0", "worker-1"), START_SECONDS, "it runs")  # noqa: B023
    loads = [fleet.load(500) for fleet in fleets]
    for number in range(6):
        fleet, name = fleets[number % 2], f"worker-{drawn.randrange(2)}"
        pid = fleet.workers()[name]["pid"]
        os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: fleet.is_running(name) and fleet.workers()[name]["pid"] != pid,  # noqa: B023
            START_SECONDS,
            "it runs again",
        )
    for fleet, load in zip(fleets, loads, strict=True):
        fleet.finish(load)
        eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert table.places() == sent(fleets[0]) + sent(fleets[1])
