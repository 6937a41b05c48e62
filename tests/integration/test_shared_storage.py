"""Several processes on one storage: two masters, two sinkers of one name, and clocks that are set back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.kinds import open_storage
from kctl_agent.storage.redis import RedisStorage
from tests.conformance.given import fill, is_empty
from tests.conftest import eventually
from tests.integration.sinker_handlers import ledger
from tests.integration.sinkers import SinkerProcess, place, sinker, storage_settings
from tests.redis_server import require_redis
from tests.servers.redis_server import RedisServer

__all__ = ["place", "sinker"]

Start = Callable[..., SinkerProcess]


@pytest.mark.shows("two sinkers of one name, or clocks set back by an hour, double and block nothing")
def test_a_second_sinker_of_one_name_is_turned_away_and_takes_nothing(place: Path, sinker: Start) -> None:
    with closing(FileStorage(place / "s.sqlite")) as storage:
        storage.prepare()
        fill(storage, 10)
        first = sinker("waits_for_gate")
        eventually(lambda: len(ledger()) == 10)

        second = sinker("counts")
        assert second.process.wait(60) == 1
        assert "sinker-0" in second.last_line
        assert storage.stats().processing == 10, "it released what the first holds"
        (place / "gate").write_bytes(b"x")

        eventually(lambda: first.stats.get("handled") == 10)
        assert first.leave() == 0
        assert len(ledger()) == 10


@pytest.mark.parametrize("kind", ["file", "redis"])
def test_clocks_set_back_an_hour_leave_nothing_stuck_or_twice(kind: str, place: Path, sinker: Start) -> None:
    """The storage's clock goes back, too: it has then seen a later time before."""
    server = None
    settings = storage_settings(place, block_messages=20)
    if kind == "redis":
        require_redis()
        server = RedisServer(place)
        server.start()
        settings |= {"mode": "redis", "url": server.url, "namespace": "g"}
    try:
        with closing(open_storage(settings)) as storage:
            storage.prepare()
            fill(storage, 400)
            sinkers = [
                sinker("sets_the_clock_back", name, storage=settings, batch_size=20, lease_seconds=2.0)
                for name in ("sinker-0", "sinker-1")
            ]
            if isinstance(storage, RedisStorage):
                eventually(lambda: len(ledger()) > 100)
                storage._session.client.hincrby(storage._session.prefix + "clock", "machine", 3_600_000)
            eventually(lambda: is_empty(storage), what="everything is handled")
            assert [one.leave() for one in sinkers] == [0, 0]
            assert list(storage.dead()) == []
    finally:
        if server is not None:
            server.kill()

    assert Counter(ledger()) == {(offset, 0): 2 for offset in range(400)}
