"""If the broker goes away under load, workers recover by themselves, answers have their age, and no message is lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually
from tests.servers.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]


@pytest.fixture
def own_broker() -> Iterator[KafkaBroker]:
    """A broker of this test's own: it is killed while others might use the shared one."""
    folder = Path(tempfile.mkdtemp(prefix="b", dir="/tmp"))
    broker = KafkaBroker(folder)
    broker.start()
    yield broker
    broker.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "away_seconds", [pytest.param(0, id="restarted"), pytest.param(12, id="away longer than a session")]
)
def test_workers_recover_and_lose_nothing(away_seconds: int, own_broker: KafkaBroker, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=2, partitions=4, on=own_broker)
    fleet.start()
    load = fleet.load(rate=500)
    eventually(lambda: fleet.is_running("worker-0", "worker-1"), START_SECONDS, "both workers run")
    eventually(lambda: len(fleet.owners()) == 2, START_SECONDS, "both have partitions")

    own_broker.kill()
    eventually(lambda: is_aged(fleet, max(away_seconds, 3)), SETTLE_SECONDS, "answers have their age")
    if away_seconds:
        eventually(lambda: any(map(names_the_broker, fleet.workers().values())), SETTLE_SECONDS, "a worker reports why")
    own_broker.start()

    reached = load.total
    eventually(lambda: load.total > reached + 1000, SETTLE_SECONDS, "the producer goes on")
    eventually(lambda: fleet.is_running("worker-0", "worker-1"), START_SECONDS, "both workers run again")
    eventually(lambda: not any(row["last_error"] for row in fleet.workers().values()), SETTLE_SECONDS, "it is over")
    fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")
    fleet.stored_once()


def is_aged(fleet: Fleet, seconds: float) -> bool:
    """Every row is still there, with the last offsets and their true age; nothing became 0."""
    rows = fleet.offsets()
    assert all(row["kafka_max_offset"] != 0 for row in rows.values())
    return len(rows) == 4 and all((row["age_seconds"] or 0) > seconds for row in rows.values())


def names_the_broker(row: dict[str, Any]) -> bool:
    """Its last error is one sentence with the address at which nobody answers."""
    return "the Kafka brokers at 127.0.0.1:" in (row["last_error"] or "") and "check that they run" in row["last_error"]
