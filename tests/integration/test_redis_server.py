"""`RedisServer`, that tests and the demo share, with a real redis-server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from kctl.errors import KctlError
from tests.redis_server import require_redis
from tests.servers.redis_server import RedisServer


@pytest.fixture
def place() -> Iterator[Path]:
    require_redis()
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_what_was_acknowledged_is_there_after_a_kill_and_a_start(place: Path) -> None:
    with RedisServer(place) as server:
        with server.client() as client:
            client.set("key", "value")
        first = server.pid

        server.kill()
        assert (server.pid, server.socket.exists()) == (None, False)
        server.start()

        assert server.pid not in (None, first)
        with server.client() as client:
            assert client.get("key") == b"value"
    assert server.ended() is not None


def test_a_frozen_server_accepts_and_does_not_answer_until_it_goes_on(place: Path) -> None:
    with RedisServer(place) as server:
        asking = redis.Redis(unix_socket_path=str(server.socket), socket_timeout=0.2, retry=None)
        with server.frozen(), asking as client, pytest.raises(redis.TimeoutError):
            client.ping()

        with server.client() as client:
            assert client.ping()


def test_options_of_the_caller_win(place: Path) -> None:
    with (
        RedisServer(place, "--appendfsync", "no", "--requirepass", "secret") as server,
        redis.Redis(unix_socket_path=str(server.socket), password="secret") as client,
    ):
        assert client.config_get("appendfsync") == {"appendfsync": "no"}


def test_a_server_that_does_not_start_names_its_log(place: Path) -> None:
    server = RedisServer(place, "--no-such-option", "1")

    with pytest.raises(KctlError, match=r"redis-server does not start; its log is .*redis\.log"):
        server.start()

    assert server.pid is None
