"""An older copy of a storage, which was put in its place while the fleet runs, is noticed and filled up."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def copy(source: Path, target: Path) -> None:
    """The copy is complete at any time, as docs/storage.md promises."""
    copied = target.with_suffix(".copied")
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(copied)) as new:
        old.backup(new)
    for name in (Path(f"{target}-wal"), Path(f"{target}-shm")):
        name.unlink(missing_ok=True)
    os.rename(copied, target)


def moved(fleet: Fleet) -> list[tuple[str, int, int, int]]:
    events = [event for event in fleet.events() if event["partition"] is not None and event["kind"] != "query_failed"]
    return sorted((event["kind"], event["partition"], event["from"], event["to"]) for event in events)


def test_an_older_copy_of_the_storage_is_noticed_and_filled_up(make_fleet: MakeFleet, tmp_path: Path) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.send(200)
    fleet.start("worker-0")
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    copy(fleet.storage.path, tmp_path / "older.sqlite")
    fleet.send(100)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    copy(tmp_path / "older.sqlite", fleet.storage.path)  # while the worker has no batch
    lost = [("storage_rolled_back", 0, 150, 100), ("storage_rolled_back", 1, 150, 100)]
    eventually(lambda: moved(fleet) == lost, START_SECONDS, "it is noticed")
    eventually(lambda: fleet.audit().stored == 300, START_SECONDS, "the lost messages are read again")
    assert "storage_exchanged" in {event["kind"] for event in fleet.events()}
    fleet.stop()

    fleet.start("worker-0")
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert moved(fleet) == [], "it is reported once"
    fleet.stored_once()
