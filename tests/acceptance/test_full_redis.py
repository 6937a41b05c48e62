"""A Redis that becomes full during puts drains by itself when sinkers run, and the workers continue."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.faults import ever_put, is_done
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, MakeFleet
from tests.acceptance.handlers import HANDLER, counted, is_poison
from tests.conftest import eventually
from tests.redis_server import require_redis
from tests.servers.redis_server import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

MESSAGES = 30_000
"""Of a KiB each, into 16 MiB."""
SINKERS = f'count = 0\nhandler = "{HANDLER}"\nmax_tries = 2\nretry_backoff_seconds = 0.05'


@pytest.fixture
def small_redis(short_dir: Path) -> RedisServer:
    require_redis()
    directory = short_dir / "redis"
    directory.mkdir()
    options = "--maxmemory 16mb --maxmemory-policy noeviction --auto-aof-rewrite-percentage 0"
    return RedisServer(directory, *options.split())


@pytest.mark.long
def test_a_full_redis_drains_by_itself_and_the_workers_go_on(make_fleet: MakeFleet, small_redis: RedisServer) -> None:
    small_redis.start()
    storage = f'mode = "redis"\nurl = "{small_redis.url}"\ncompression = "none"'
    fleet = make_fleet(workers=1, partitions=2, storage=storage, sinkers=SINKERS)
    fleet.send(MESSAGES, b"x" * 1024)
    fleet.start()

    def why() -> str:
        row = fleet.workers().get("worker-0", {})
        return str(row.get("last_error") or "")

    eventually(lambda: "maxmemory" in why(), START_SECONDS, "the Redis is full, and the worker reports it")
    assert not fleet.is_caught_up()
    fleet.kctl("scale", "sinkers=2", "--wait")
    eventually(fleet.is_caught_up, START_SECONDS, "everything is stored and committed")
    with closing(fleet.open_storage()) as storage_:
        eventually(lambda: is_done(storage_), SETTLE_SECONDS, "it is empty")
        dead = {(dead_letter.block.partition, dead_letter.offset) for dead_letter in storage_.dead()}
    fleet.stop()

    produced = {(tp.partition, offset) for tp, count in fleet.sent.items() for offset in range(count)}
    acknowledged, _ = counted(fleet.ledger)
    put = list(ever_put(small_redis.directory))
    assert len(put) == len(set(put)), "stored twice"
    assert set(put) == produced
    assert dead == {place for place in produced if is_poison(place[1])}
    assert set(acknowledged) == produced - dead
    assert acknowledged.total() == len(acknowledged), "handled twice"
    small_redis.kill()
