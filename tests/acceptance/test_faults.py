"""If parts of a running fleet are killed under load, or stand still for longer than their lease, no message is lost or
stored twice, and only messages in flight are handled twice."""

from __future__ import annotations

import pytest

from tests.acceptance.faults import Faults
from tests.acceptance.fleets import MakeFleet
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.redis_server import RedisServer

REPETITIONS = 20
BRIEF_RATE = 300.0
"""Messages a second for tests with one kill of each part: the backlog of a worker's restart has to be handled, too."""
LEASE_SECONDS = 4.0
"""For leases that a sinker outlives; a sinker renews a lease three times in this time, also with a small share of two
cores.
"""


@pytest.fixture
def server_or_none(request: pytest.FixtureRequest, broker: KafkaBroker) -> RedisServer | None:
    """Redis exists before and after the fleet; the shared broker exists before the test."""
    return request.getfixturevalue("redis_server") if request.param == "redis" else None


@pytest.mark.shows("a killed master leaves no process behind, and its workers leave their group")
@pytest.mark.parametrize("server_or_none", [pytest.param("file", marks=pytest.mark.long), "redis"], indirect=True)
def test_whatever_is_killed_only_what_was_in_flight_repeats(
    server_or_none: RedisServer | None, make_fleet: MakeFleet
) -> None:
    faults = Faults(make_fleet, server_or_none, rate=BRIEF_RATE)

    faults.kill_sinker()
    if server_or_none is not None:
        faults.kill_redis()
    faults.kill_worker()
    faults.kill_master()

    faults.settle_accounts()
    logs = "".join(path.read_text() for path in (faults.fleet.directory / "logs").glob("*.log"))
    assert "the master is gone" in logs
    assert "Traceback" not in logs
    checkpoints = list((faults.fleet.directory / "data" / "scratch" / "worker-0").glob("query-*"))
    assert len(checkpoints) == 1, "the checkpoints of killed workers are gone"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("server_or_none", ["file", "redis"], indirect=True)
def test_an_outlived_lease_settles_nothing(server_or_none: RedisServer | None, make_fleet: MakeFleet) -> None:
    faults = Faults(make_fleet, server_or_none, LEASE_SECONDS)

    for _ in range(REPETITIONS):
        faults.outlive_lease()

    faults.settle_accounts()
    assert faults.in_flight
