"""If a system that a fleet needs is away for far longer than a process may hang, each process waits, reports it, and
continues by itself."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.acceptance.handlers import KEEPER, kept
from tests.acceptance.outage_bench import Bench
from tests.acceptance.outages import broker_killed, redis_frozen, redis_killed
from tests.conftest import eventually
from tests.servers.kafka_broker import running_broker
from tests.servers.redis_server import RedisServer

OUTAGE_SECONDS = float(os.environ.get("KCTL_TEST_OUTAGE_SECONDS", "100"))  # processes count as stalled after 60 s
NAMED_SECONDS = 45.0
"""A sinker waits 30 s for a reply. A claim whose reply is lost keeps its messages until the lease ends."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(300 + 2 * OUTAGE_SECONDS)]

WORKERS = """\
stalled_seconds = 60.0
stable_seconds = 5.0
backoff_max_seconds = 1.0
"""
SINKERS = f'count = 1\nhandler = "{KEEPER}"'


class Given(Bench):
    def __init__(self, fleet: Fleet, parts: dict[str, Any]) -> None:
        self.fleet, self.parts = fleet, parts

    def waiting(self) -> dict[str, str]:
        return {name: row["waiting_for"]["what"] for name, row in self.fleet.processes().items() if row["waiting_for"]}

    def restarts(self) -> dict[str, int]:
        return {name: row["supervisor"]["restarts"] for name, row in self.fleet.processes().items()}


@pytest.fixture
def given(short_dir: Path, make_fleet: MakeFleet, redis_server: RedisServer) -> Iterator[Given]:
    storage = f'mode = "redis"\nurl = "{redis_server.url}"'
    with running_broker() as broker:
        fleet = make_fleet(workers=2, partitions=2, on=broker, storage=storage, sinkers=SINKERS, workers_more=WORKERS)
        fleet.start("worker-0", "worker-1")
        yield Given(fleet, {"broker": broker, "redis": redis_server})
        fleet.stop()


@contextmanager
def cannot_be_written(given: Given) -> Iterator[None]:
    with given.parts["redis"].client() as client:
        client.replicaof("127.0.0.1", "1")
        yield
        client.replicaof("NO", "ONE")


@contextmanager
def engine_is_away(given: Given) -> Iterator[None]:
    given.fleet.kctl("stop", "engine")
    yield
    given.fleet.kctl("start", "engine")


@pytest.mark.parametrize(
    ("outage", "what", "who"),
    [
        (redis_killed, "storage", {"worker-0", "worker-1", "sinker-0"}),
        (redis_frozen, "storage", {"worker-0", "worker-1", "sinker-0"}),
        (cannot_be_written, "storage", {"worker-0", "worker-1"}),
        (broker_killed, "brokers", {"worker-0", "worker-1"}),
        (engine_is_away, "engine", {"worker-0", "worker-1"}),
    ],
)
def test_an_outage_is_waited_for_however_long_it_lasts(outage: Any, what: str, who: set[str], given: Given) -> None:
    fleet = given.fleet
    fleet.send(1000)
    eventually(fleet.is_caught_up, 2 * START_SECONDS, "all is well before")
    before = given.restarts()
    killed = sorted({"worker-1", "sinker-0"} & who)

    if what != "brokers":
        load = fleet.load(rate=50)
    with outage(given):
        eventually(lambda: set(given.waiting()) >= who, NAMED_SECONDS, "each that needs it names it")
        assert set(given.waiting().values()) == {what}
        for name in killed:
            os.kill(fleet.processes()[name]["pid"], signal.SIGKILL)
        eventually(lambda: given.waiting().keys() >= who, START_SECONDS, "what is started meanwhile waits as well")
        until = time.monotonic() + OUTAGE_SECONDS
        eventually(lambda: time.monotonic() > until, OUTAGE_SECONDS + 30)
        rows = fleet.processes()
        assert {rows[name]["supervisor"]["state"] for name in who} == {"running"}
        assert all(f"waits for the {what} since" in rows[name]["last_error"] for name in who)

    if what == "brokers":
        fleet.send(1000)
    else:
        fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")
    eventually(lambda: len(kept(fleet.ledger)) >= fleet.sent.total(), SETTLE_SECONDS, "and handled")
    eventually(lambda: given.waiting() == {}, SETTLE_SECONDS, "nothing is waited for")
    places = [(message.partition, message.offset) for message in kept(fleet.ledger)]
    assert len(set(places)) == fleet.sent.total()
    expected = {**before, **{name: before[name] + 1 for name in killed}}
    assert given.restarts() == expected, "nobody was restarted but who was killed"
