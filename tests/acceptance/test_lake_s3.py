"""Each message of Kafka is one row of a Delta table in an object store, on a real S3-compatible server."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.fleets import START_SECONDS, Fleet, MakeFleet
from tests.acceptance.tables import StoredLake, sent
from tests.conftest import eventually
from tests.object_store_server import ObjectStoreServer

ROOT = Path(__file__).parents[2]


def killed(fleet: Fleet, table: StoredLake) -> None:
    before = table.opened().version()
    eventually(lambda: table.opened().version() > before + 1, START_SECONDS, "batches are stored")
    pid = fleet.workers()["worker-0"]["pid"]
    os.kill(pid, signal.SIGKILL)
    eventually(
        lambda: fleet.is_running("worker-0") and fleet.workers()["worker-0"]["pid"] != pid,
        START_SECONDS,
        "it runs again",
    )


def test_each_row_is_stored_once_and_keys_are_hidden(make_fleet: MakeFleet, object_store: ObjectStoreServer) -> None:
    table = StoredLake(object_store)
    fleet = make_fleet(partitions=3, storage=table.settings("maintenance = false"))
    fleet.send(3000)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")
    assert table.places() == sent(fleet)

    load = fleet.load(2000)
    killed(fleet, table)
    fleet.finish(load)
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    assert table.places() == sent(fleet)
    assert object_store.keys is not None
    secret = object_store.keys.secret
    assert not [each for each in fleet.family() if secret in " ".join(each.cmdline())]
    shown = [fleet.kctl("config", "show").stdout, fleet.kctl("storage", "status").stdout]
    logs = [file for file in fleet.directory.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    assert (logs, [text for text in shown if secret in text]) == ([], [])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_rows_and_dead_letters_are_stored_once_beside_maintenance_kills_and_a_store_that_is_away(
    make_fleet: MakeFleet, object_store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No message of the first batch becomes a row, so Spark writes no file. In the end dead letters are requeued."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KCTL_REPAIRED", str(object_store.directory / "repaired"))
    table, dead_letters = StoredLake(object_store), StoredLake(object_store, "orders_dead_letters")
    drawn = random.Random(int(os.environ.get("KCTL_TEST_SEED", "1")))
    fleet = make_fleet(
        partitions=2,
        storage=table.settings('maintenance = false\npartition_by = ["topic"]'),
        workers_more='transform = "tests.acceptance.transforms:fewer_marked_when_repaired"',
    )
    fleet.send(1)
    fleet.start()
    eventually(fleet.is_caught_up, START_SECONDS, "all is committed")

    load = fleet.load(500)
    for _ in range(2):
        killed(fleet, table)
        fleet.kctl("storage", "optimize")
        fleet.kctl("storage", "vacuum", "--retention-hours", "0", "--yes")
        object_store.kill()
        away = drawn.uniform(0, 40)
        began = os.times().elapsed
        eventually(lambda: os.times().elapsed - began > away, 60, "it was away for so long")  # noqa: B023
        object_store.start()
    fleet.finish(load)
    eventually(fleet.is_caught_up, 2 * START_SECONDS, "all is committed")
    marked = Counter({place: 1 for place in sent(fleet) if place[2] % 10 == 0})
    assert dead_letters.places() == marked
    assert table.places() == sent(fleet) - marked

    (object_store.directory / "repaired").touch()
    fleet.kctl("storage", "dead", "requeue")
    still = Counter({place: 1 for place in sent(fleet) if place[2] % 100 == 0})
    eventually(lambda: dead_letters.places() == still, 120, "they are requeued")
    assert table.places() == sent(fleet) - still
