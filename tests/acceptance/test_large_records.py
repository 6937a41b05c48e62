"""With records of 0.9 MB in 400 partitions, the default heap has room for fewer of Kafka's consumers than there are
partitions."""

import os

import pytest

from tests.acceptance.fleets import MakeFleet
from tests.conftest import eventually

pytestmark = pytest.mark.timeout(900)

PARTITIONS = 400
DRAIN_SECONDS = 600


@pytest.mark.long
@pytest.mark.shows("the default heap stores records of 0.9 MB in 400 partitions, after at most one exit")
@pytest.mark.parametrize(
    ("engine", "driver", "setting"), [("shared", "engine", "engine.heap"), ("own", "worker-0", "spark.driver_memory")]
)
def test_large_records_cost_one_exit_at_most(make_fleet: MakeFleet, engine: str, driver: str, setting: str) -> None:
    fleet = make_fleet(workers=1, partitions=PARTITIONS, engine=engine, java="", spark_master="local[2]")
    fleet.send(2 * PARTITIONS, os.urandom(900_000))
    fleet.start()

    eventually(fleet.is_caught_up, DRAIN_SECONDS, "everything is stored and committed")

    restarts = fleet.processes()[driver]["supervisor"]["restarts_by_cause"]
    log = (fleet.directory / "logs" / f"{driver}.log").read_text()
    exits = restarts.get("exit", 0)
    assert sum(restarts.values()) == exits <= 1
    assert log.count(f"failed: out of memory (heap 512m): raise {setting}\n") == exits
    assert fleet.stored_once() == 2 * PARTITIONS
