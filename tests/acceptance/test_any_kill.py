"""SIGKILL and SIGSTOP of any process at any time under load, by a seeded schedule, lose and double no message.

`KCTL_TEST_SEEDS="7 8"` makes other schedules, whose seed is in the test's name; `KCTL_TEST_PARTITIONS=100` more
partitions, `KCTL_TEST_STRIKES=10` fewer strikes.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.fleets import MakeFleet
from tests.acceptance.schedule import OwnBroker, Schedule
from tests.acceptance.tables import Lake
from tests.servers.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
STRIKES = int(os.environ.get("KCTL_TEST_STRIKES", "50"))
SEEDS = [int(word) for word in os.environ.get("KCTL_TEST_SEEDS", "1").split()]


@pytest.fixture
def own_broker() -> Iterator[OwnBroker]:
    folder = Path(tempfile.mkdtemp(prefix="b", dir="/tmp"))
    broker = OwnBroker(folder)
    broker.begin()()
    yield broker
    broker.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def lake(storage: str, short_dir: Path) -> Lake | None:
    return Lake(short_dir) if storage == "lake" else None


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("storage", ["redis", "file", "lake"])
def test_whatever_is_killed_or_frozen_whenever_all_is_whole_afterwards_and_nothing_is_lost(
    seed: int,
    storage: str,
    lake: Lake | None,
    own_broker: OwnBroker,
    redis_server: RedisServer,
    make_fleet: MakeFleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    redis = redis_server if storage == "redis" else None
    with closing(Schedule(seed, make_fleet, own_broker, redis, lake)) as schedule:
        schedule.run(STRIKES)

        assert schedule.struck.total() == STRIKES
        schedule.settle_accounts()
