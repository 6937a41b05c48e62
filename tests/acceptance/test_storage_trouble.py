"""A storage that cannot be written is reported, no unstored message is committed, and kctl uses the storage again when
it can.

The disk is a small file system of its own, which needs root to be mounted.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from kctl_agent.storage.file import FileStorage
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system: needs root"),
]

SMALL, LARGE = "size=8m,mode=700", "size=500m"


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


@pytest.fixture
def disk(short_dir: Path) -> Iterator[Path]:
    place = short_dir / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", SMALL, "none", str(place)], capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield place
    subprocess.run(["umount", "--recursive", str(place)], check=True)


@pytest.fixture
def fleet(disk: Path, make_fleet: MakeFleet) -> Fleet:
    """On the disk, which messages that are all alike fill; it is started by the test."""
    # Not watched: what is reported of a disk that is full nevertheless is what this is about.
    storage = f'path = "{disk / "storage.sqlite"}"\ncompression = "none"\nmin_free = ""'
    return make_fleet(workers=1, partitions=2, storage=storage)


def refused(fleet: Fleet, *why: str) -> dict[str, Any] | None:
    """The worker's row when its last error names one of these causes."""
    row = fleet.workers().get("worker-0", {})
    return row if any(word in (row.get("last_error") or "") for word in why) else None


def not_ready(fleet: Fleet) -> str:
    """What `/readyz` answers; empty when the fleet is ready."""
    response = httpx.get(f"{fleet.url()}/readyz", timeout=60)
    return "" if response.status_code == 200 else str(response.json()["error"]["message"])


def committed(fleet: Fleet) -> int:
    return sum(row["current_offset"] or 0 for row in fleet.offsets().values())


def check_that_nothing_is_committed_that_is_not_stored(fleet: Fleet) -> None:
    reported = {partition: row["current_offset"] or 0 for partition, row in fleet.offsets().items()}
    places = [(fleet.topic, partition) for partition in reported]
    stored_offsets = {
        partition: stored.next for (_, partition), stored in fleet.open_storage().stored_offsets(places).items()
    }
    assert all(reported[partition] <= stored_offsets[partition] for partition in reported), (reported, stored_offsets)
    assert sum(stored_offsets.values()) < fleet.sent.total(), "everything was stored after all"


@pytest.mark.long
def test_a_disk_that_is_full_or_cannot_be_written_is_reported_and_used_again(fleet: Fleet, disk: Path) -> None:
    fleet.start("worker-0")
    pid = fleet.workers()["worker-0"]["pid"]

    fleet.send(10_000, b"x" * 1000)
    row = eventually(lambda: refused(fleet, "disk is full"), SETTLE_SECONDS, "the full disk is reported")
    assert f"could not be stored in {disk / 'storage.sqlite'}: database or disk is full" in row["last_error"]
    eventually(lambda: "disk is full" in fleet.kctl("status", exit_code=None).stdout, what="by kctl status too")
    eventually(lambda: "disk is full" in not_ready(fleet), what="and the fleet is not ready")
    check_that_nothing_is_committed_that_is_not_stored(fleet)
    mount("-o", f"remount,{LARGE}", str(disk))
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "there is room, and everything is stored and committed")
    eventually(lambda: fleet.workers()["worker-0"]["last_error"] is None, SETTLE_SECONDS, "the error is overcome")
    eventually(lambda: not_ready(fleet) == "", SETTLE_SECONDS, "the fleet is ready again")

    mount("--bind", str(disk), str(disk))
    mount("-o", "remount,bind,ro", str(disk))
    fleet.send(500)
    eventually(lambda: refused(fleet, "readonly", "unable to open"), SETTLE_SECONDS, "the read-only file is reported")
    assert committed(fleet) == 10_000, "nothing is committed that cannot be stored"
    subprocess.run(["umount", str(disk)], check=True)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "it can be written, and everything is stored and committed")

    assert fleet.workers()["worker-0"]["pid"] == pid, "no worker had to be started again"
    assert fleet.stored_once() == 10_500


@pytest.mark.long
def test_a_file_of_another_version_or_a_damaged_one_is_reported_and_used_again(fleet: Fleet, disk: Path) -> None:
    path, copy = disk / "storage.sqlite", disk / "copy"
    mount("-o", f"remount,{LARGE}", str(disk))
    FileStorage(path).prepare()
    version = set_version(path, 99)
    fleet.send(500)
    fleet.start()
    sentence = f"{path} has version 99 of the storage"
    eventually(lambda: sentence in fleet.kctl("status", exit_code=None).stdout.replace("\n", ""), START_SECONDS)
    set_version(path, version)
    eventually(fleet.is_caught_up, START_SECONDS, "it has the right version, and everything is stored and committed")

    with closing(sqlite3.connect(path)) as whole, closing(sqlite3.connect(copy)) as kept:
        whole.backup(kept)
    for each in (path, Path(f"{path}-wal")):
        damage(each)
    fleet.send(500)
    eventually(lambda: refused(fleet, "malformed", "not a database"), SETTLE_SECONDS, "the damage is reported")
    assert committed(fleet) == 500, "nothing is committed that cannot be stored"
    for each in disk.glob("storage.sqlite*"):
        each.unlink()
    shutil.copy(copy, path)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "the copy is in its place, and everything is stored and committed")

    assert fleet.stored_once() == 1000


def set_version(path: Path, version: int) -> int:
    """Returns the one before."""
    with closing(sqlite3.connect(path)) as db:
        (before,) = db.execute("pragma user_version").fetchone()
        db.execute(f"pragma user_version={version}")
    return int(before)


def damage(path: Path) -> None:
    """Everything behind the first hundred bytes, in place."""
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xa5" * (path.stat().st_size - 100))
