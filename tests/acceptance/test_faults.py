"""Parts of a running fleet are killed under load, or stand still for longer than their lease: nothing is lost or stored
twice, and handled twice is only what such a sinker had in flight."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.faults import Faults
from tests.acceptance.fleets import Eventually, Fleet
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.redis_server import RedisServer

pytestmark = [pytest.mark.real]

REPETITIONS = 20
BRIEF_RATE = 300.0
"""Messages a second where each is killed but once: what piles up while the worker starts anew has to be handled too."""
LEASE_SECONDS = 4.0
"""Of those that are outlived; a sinker renews it three times in this time, also when it has little of two cores."""


@pytest.fixture(params=["file", "redis"])
def server_or_none(request: pytest.FixtureRequest, broker: KafkaBroker) -> RedisServer | None:
    """Redis is there before the fleet and after it; the broker, which is everybody's, before the test."""
    return request.getfixturevalue("redis_server") if request.param == "redis" else None


@pytest.fixture
def faults(server_or_none: RedisServer | None, make_fleet: Callable[..., Fleet], eventually: Eventually) -> Faults:
    return Faults(make_fleet, eventually, server_or_none)


@pytest.fixture
def short_leases(
    server_or_none: RedisServer | None, make_fleet: Callable[..., Fleet], eventually: Eventually
) -> Faults:
    return Faults(make_fleet, eventually, server_or_none, LEASE_SECONDS)


@pytest.fixture
def redis_faults(redis_server: RedisServer, make_fleet: Callable[..., Fleet], eventually: Eventually) -> Faults:
    return Faults(make_fleet, eventually, redis_server)


@pytest.mark.timeout(300)
def test_whatever_is_killed_nothing_is_lost_and_only_what_was_in_flight_is_handled_again(
    redis_server: RedisServer, make_fleet: Callable[..., Fleet], eventually: Eventually
) -> None:
    faults = Faults(make_fleet, eventually, redis_server, rate=BRIEF_RATE)

    faults.kill_sinker()
    faults.kill_redis()
    faults.kill_worker(with_all_its_processes=False)
    faults.kill_master()

    faults.settle_accounts()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_worker_killed_twenty_times_inside_a_put_loses_nothing_and_stores_nothing_twice(faults: Faults) -> None:
    for number in range(REPETITIONS):
        faults.kill_worker(with_all_its_processes=number % 2 == 0)

    faults.settle_accounts()
    assert any(faults.uncommitted), "no kill came between a put and its commit"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_master_killed_twenty_times_costs_no_message_and_none_is_handled_again(faults: Faults) -> None:
    for _ in range(REPETITIONS):
        faults.kill_master()

    faults.settle_accounts()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_redis_killed_twenty_times_keeps_what_it_has_acknowledged(redis_faults: Faults) -> None:
    for _ in range(REPETITIONS):
        redis_faults.kill_redis()

    redis_faults.settle_accounts()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_sinker_killed_twenty_times_inside_its_handler_repeats_only_what_it_held(faults: Faults) -> None:
    for _ in range(REPETITIONS):
        faults.kill_sinker()

    faults.settle_accounts()
    assert faults.in_flight


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_lease_outlived_twenty_times_inside_the_handler_is_reported_and_settles_nothing(short_leases: Faults) -> None:
    for _ in range(REPETITIONS):
        short_leases.outlive_lease()

    short_leases.settle_accounts()
    assert short_leases.in_flight
