import sqlite3
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from kctl_agent.storage.base import Storage
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.file.queue_table import MachineClock
from kctl_agent.storage.redis import RedisStorage
from tests.servers.redis_server import RedisServer, is_installed, require_redis

BLOCK_MESSAGES = 3
KINDS = ("file", "redis")


@dataclass(frozen=True)
class Bench:
    storage: Storage
    pass_time: Callable[[float], None]
    damage: Callable[[int], bytes]


def flipped(body: bytes) -> bytes:
    return body[:-4] + bytes([body[-4] ^ 1]) + body[-3:]


@dataclass
class Machine(MachineClock):
    """Its clocks change only in a test. Its pickled copy is another machine."""

    since_boot: float = 1000.0
    unix: float = 1_700_000_000.0
    boot: str = "first"

    def now(self) -> float:
        return self.since_boot

    def wall(self) -> float:
        return self.unix

    def boot_id(self) -> str:
        return self.boot

    def pass_time(self, seconds: float) -> None:
        self.since_boot += seconds
        self.unix += seconds


def file_bench(path: Path) -> Bench:
    machine = Machine()
    storage = FileStorage(path, block_messages=BLOCK_MESSAGES, clock=machine)

    def damage(first: int) -> bytes:
        with closing(sqlite3.connect(path)) as db, db:
            (body,) = db.execute("select body from block where first=?", (first,)).fetchone()
            db.execute("update block set body=? where first=?", (flipped(body), first))
        return flipped(body)

    return Bench(storage, machine.pass_time, damage)


@pytest.fixture(scope="session", autouse=True)
def redis_server() -> Iterator[RedisServer | None]:
    """One server for all tests of this folder, started before any test checks for leftovers."""
    if not is_installed():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder, RedisServer(Path(folder)) as server:
        yield server


def redis_bench(url: str) -> Bench:
    storage = RedisStorage(url, uuid.uuid4().hex, block_messages=BLOCK_MESSAGES)
    client = storage._session.client

    def pass_time(seconds: float) -> None:
        client.hincrby(storage._session.prefix + "clock", "now", int(seconds * 1000))
        for key in client.scan_iter(storage._session.prefix + "block:*"):
            client.hincrby(key, "since", -int(seconds * 1000))

    def damage(first: int) -> bytes:
        for key in client.scan_iter(storage._session.prefix + "block:*"):
            if client.hget(key, "first") == str(first).encode():
                place = key.replace(b"block:", b"body:")
                body = flipped(client.get(place))
                client.set(place, body)
                return body
        raise LookupError(first)

    return Bench(storage, pass_time, damage)


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer | None) -> Iterator[Bench]:
    if request.param == "file":
        bench = file_bench(tmp_path / "deep" / "storage.sqlite")
    else:
        require_redis()
        assert redis_server is not None
        bench = redis_bench(redis_server.url)
    bench.storage.prepare()
    yield bench
    bench.storage.close()


@pytest.fixture
def storage(bench: Bench) -> Storage:
    return bench.storage


@pytest.fixture
def pass_time(bench: Bench) -> Callable[[float], None]:
    return bench.pass_time


@pytest.fixture
def damage(bench: Bench) -> Callable[[int], bytes]:
    return bench.damage
