"""The Redis storage alone: connections, rights, restarts, and a server at its `maxmemory`."""

import itertools
import logging
import pickle
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kctl.demo.kafka_broker import free_ports
from kctl_agent.message import Message
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.block import BinaryColumn
from kctl_agent.storage.chunk import Advance, Binding, Chunk, StoredOffset
from kctl_agent.storage.claim import Settled
from kctl_agent.storage.limits import why_full
from kctl_agent.storage.redis import RedisStorage, client
from kctl_agent.storage.redis.client import _source
from kctl_agent.storage.selection import Selection
from tests.certificates import make_certificate
from tests.conformance.given import TOPIC_ID, chunk, everything, fill, is_empty, offsets, put, settle_dead, total
from tests.conftest import eventually
from tests.integration.conftest import write_secret
from tests.integration.sinker_handlers import ledger
from tests.integration.sinkers import SinkerProcess, place, sinker, storage_settings
from tests.meanwhile import Meanwhile
from tests.proxies import CuttingProxy
from tests.servers.redis_server import RedisServer, require_redis

__all__ = ["place", "sinker"]

LUA = Path(client.__file__).with_name("lua")
DOCS = Path(__file__).parents[2] / "docs" / "storage.md"


@pytest.fixture
def start(short_dir: Path) -> Iterator[Callable[..., RedisServer]]:
    require_redis()
    servers: list[RedisServer] = []

    def started(*options: str) -> RedisServer:
        directory = short_dir / str(len(servers))
        directory.mkdir()
        servers.append(RedisServer(directory, *options))
        servers[-1].start()
        return servers[-1]

    yield started
    for server in servers:
        server.kill()


@pytest.fixture
def server(start: Callable[..., RedisServer]) -> RedisServer:
    return start()


@pytest.fixture
def storage(server: RedisServer) -> Iterator[RedisStorage]:
    with closing(opened(server.url)) as storage:
        yield storage


def opened(url: str, **given: Any) -> RedisStorage:
    storage = RedisStorage(url, "readers", block_messages=3, **given)
    storage.prepare()
    return storage


class Putting(Meanwhile):
    def __init__(self, storage: RedisStorage) -> None:
        super().__init__()
        self._storage = storage
        self._start = 0

    def turn(self) -> None:
        put(self._storage, chunk(self._start, self._start + 10))
        self._start += 10


def test_nothing_is_lost_when_redis_is_killed_and_started_again(server: RedisServer, storage: RedisStorage) -> None:
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])

    with Putting(storage) as putting:
        for _ in range(5):
            before = putting.turns
            eventually(lambda before=before: putting.turns > before, what="it puts")
            server.kill()
            server.start()
        eventually(lambda: putting.turns >= 30, what="it puts on")

    assert putting.wrong == []
    assert [message.offset for message in everything(storage)] == list(range(putting.turns * 10))


def test_a_redis_that_hangs_is_given_up_and_not_waited_for_at_each_of_seven_tries(server: RedisServer) -> None:
    with closing(opened(server.url, reply_seconds=1.0)) as storage:
        fill(storage, 3)
        with server.frozen():
            began = time.monotonic()
            with pytest.raises(StorageUnusable, match="Timeout"):
                storage.stored_offsets([("t", 0)])
            assert time.monotonic() - began < 5, "one time-out of a second, not seven"
        assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 3
        assert pickle.loads(pickle.dumps(storage))._session.reply_seconds == client.REPLY_SECONDS, "an executor's"


@pytest.mark.shows("an unreachable Redis is reported, then used again; a lost reply does nothing twice")
def test_redis_is_used_again(server: RedisServer, storage: RedisStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRIES", 1)
    storage.close()
    fill(storage, 3)
    server.kill()

    for use in (storage.stats, lambda: put(storage, chunk(3, 6)), lambda: storage.claim("a", 1, 60.0)):
        with pytest.raises(StorageUnusable, match="cannot be used"):
            use()
    server.start()

    put(storage, chunk(3, 6))
    assert len(everything(storage)) == 6


def test_whatever_lost_its_reply_is_repeated_and_does_nothing_more(server: RedisServer) -> None:
    # redis-py repeats a call whose connection broke, even if Redis has run it.
    with (
        CuttingProxy(server.directory / "proxy.sock", server.socket) as proxy,
        closing(opened(f"unix://{proxy.path}")) as storage,
        server.client() as client,
    ):
        for name in (path.stem for path in LUA.glob("*.lua")):
            client.script_load(_source(name))
        proxy_cuts = itertools.count(1)

        def cut(call: Callable[[], Any], meanwhile: Callable[[], object] = int) -> Any:
            proxy.cut_next_reply(b"EVALSHA", meanwhile)
            found = call()
            assert proxy.cuts == next(proxy_cuts)
            return found

        owner = Binding("readers", "K")
        assert cut(lambda: storage.bind(owner)) == storage.bind(owner) != ""
        cut(lambda: storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0)]))
        put(storage, chunk(0, 12))
        cut(lambda: storage.advance_offsets([Advance("t", 0, 1, 12, 15)]))
        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, TOPIC_ID, 15, 1)}

        first, second = cut(lambda: storage.claim("a", 6, 600.0))
        (third,) = storage.claim("b", 3, 600.0)
        assert cut(lambda: storage.renew(first, 600.0))
        assert cut(lambda: storage.settle(first, [True, False, False], dead={1: "no", 2: "no"})) == Settled(
            gone=1, dead=2
        )
        assert cut(lambda: storage.settle(second, [True, False, True])) == Settled(gone=2, again=1)
        assert offsets([third]) == [6, 7, 8]
        assert cut(lambda: storage.release("b")) == 3
        assert total(storage) == (6, 0, 1, 2)

        assert cut(storage.requeue_stuck) == 1
        lost = Message("t", 0, 20, None, None, 0)
        cut(lambda: storage.dead_letter([lost], "no"), lambda: requeue_behind_its_back(server))
        assert total(storage) == (10, 0, 0, 0), "it was requeued before the call was repeated"
        storage.dead_letter([lost], "no")
        assert cut(storage.requeue_dead) == 1
        storage.dead_letter([lost], "no")
        assert cut(lambda: storage.remove_dead()) == 1
        assert total(storage) == (11, 0, 0, 0)
        assert cut(lambda: storage.clear()) == 11


def requeue_behind_its_back(server: RedisServer) -> None:
    with closing(opened(server.url)) as other:
        assert other.requeue_dead() == 3


def test_a_server_that_forgot_the_scripts_is_sent_them_again(server: RedisServer, storage: RedisStorage) -> None:
    fill(storage, 3)
    with server.client() as client:
        client.script_flush()
        assert len(everything(storage)) == 3

        client.script_flush()
        put(storage, chunk(3, 9))

        assert len(everything(storage)) == 6
        assert list(client.scan_iter("*sent:*")) == []


@pytest.mark.shows("no Redis command has a cost that grows with the database: no `KEYS`, no `MAXLEN`")
def test_no_command_is_used_whose_cost_grows_with_the_database(server: RedisServer, storage: RedisStorage) -> None:
    fill(storage, 6)
    (claim,) = storage.claim("a", 3, 60.0)
    settle_dead(storage, claim)
    everything(storage)
    storage.requeue_dead()
    storage.stats()
    storage.clear()

    with server.client() as client:
        used = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert "evalsha" in used
    assert not used & {"keys", "scan", "hscan", "zscan", "sort", "lrem", "xtrim", "flushdb", "flushall"}


@pytest.mark.shows("a Redis URL can have socket, database, password, TLS, a user with the documented rights")
def test_storages_are_apart_by_database_and_namespace(server: RedisServer) -> None:
    third = f"{server.url}?db=3"
    with closing(opened(third)) as storage, closing(RedisStorage(third, "others")) as other, server.client() as client:
        fill(storage, 3)
        other.prepare()

        assert (total(other), other.stored_offsets([("t", 0)])) == ((0, 0, 0, 0), {})
        assert storage.identity == f"redis:unix:{server.socket}?db=3/readers" != other.identity
        assert client.dbsize() == 0
        client.select(3)
        assert {key.partition(b":")[0] for key in client.scan_iter()} == {b"{kctl"}


def test_a_password_in_the_url_or_a_file_is_never_shown(start: Callable[..., RedisServer], tmp_path: Path) -> None:
    server = start("--requirepass", "hunter2")
    secret = write_secret(tmp_path / "secret", "hunter2\n")

    with closing(opened(f"unix://:hunter2@{server.socket}")) as storage:
        fill(storage, 3)
        assert "hunter2" not in storage.identity
    with closing(opened(server.url, password_file=secret)) as storage:
        assert total(storage) == (3, 0, 0, 0)
    with pytest.raises(StorageUnusable) as refused:
        opened(f"unix://:hunter3@{server.socket}")
    assert "hunter3" not in str(refused.value)
    secret.chmod(0o644)
    for file, why in (secret, "every user .*mode 0644.*chmod o="), (tmp_path / "nothing", "No such file"):
        with pytest.raises(StorageUnusable, match=rf"cannot read storage.password_file .*: {why}"):
            opened(server.url, password_file=file)


def test_a_user_with_the_documented_rights_can_do_everything(server: RedisServer) -> None:
    (rule,) = re.findall(r"ACL SETUSER kctl on >PASSWORD (.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "kctl", "on", ">hunter2", *rule.split())

    with closing(opened(f"unix://kctl:hunter2@{server.socket}")) as storage:
        fill(storage, 9)
        claims = storage.claim("a", 6, 60.0)
        storage.renew(claims[0], 60.0)
        storage.settle(claims[0], [True, False, True])
        settle_dead(storage, claims[1])
        storage.release("a")
        storage.bind(Binding("orders", "K1"))
        storage.advance_offsets([Advance("t", 0, 1, 9, 10)])
        storage.dead_letter(claims[0].messages, "no")
        assert len(list(storage.dead())) == 6
        assert len(storage.dead_page(Selection(traceback="no"), storage.dead_page(limit=2).next).rows) == 4
        assert storage.find_dead("4711") is None
        assert [group.count for group in storage.dead_groups(Selection(topic="t"), hours=1)] == [6]
        assert storage.requeue_dead() == 6
        storage.requeue_stuck()
        list(storage.blocks())
        storage.claim("b", 1, 60.0, ordered=True)
        assert storage.clear() + storage.remove_dead() + storage.stats().processing == 10
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "kctl", "-hset")
    with pytest.raises(StorageUnusable, match=r"ACL|permission|cannot be used"):
        opened(f"unix://kctl:hunter2@{server.socket}").init_offsets([StoredOffset("t", 1, "A", 0)])


def test_it_speaks_tls(short_dir: Path, start: Callable[..., RedisServer]) -> None:
    certificate = make_certificate(short_dir)
    [port] = free_ports(1)
    start(
        "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(short_dir / "key.pem"),
        "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no",
    )  # fmt: skip

    with closing(opened(f"rediss://localhost:{port}/0?ssl_ca_certs={certificate}")) as storage:
        fill(storage, 3)
        assert storage.identity == f"redis:rediss://localhost:{port}/0/readers"
        assert len(everything(storage)) == 3
    with pytest.raises(StorageUnusable, match=r"(?i)certificate"):
        opened(f"rediss://localhost:{port}/0")


@pytest.mark.shows("a Redis that could lose messages is rejected or causes a warning")
def test_a_redis_that_could_lose_messages_is_rejected_or_warned_of(
    start: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kctl_agent")

    for options, reason in (
        (("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"), "maxmemory-policy allkeys-lru"),
        (("--replicaof", "127.0.0.1", "1"), "replica"),
    ):
        with pytest.raises(StorageUnusable, match=reason):
            opened(start(*options).url)
    assert caplog.text == ""
    opened(start().url).close()
    assert caplog.text == ""
    opened(start("--appendonly", "no").url).close()
    assert "has no append-only file" in caplog.text
    opened(start("--appendfsync", "everysec").url).close()
    assert "may lose the last seconds when it is killed (appendfsync everysec)" in caplog.text


def test_another_layout_is_rejected(server: RedisServer, storage: RedisStorage) -> None:
    with server.client() as client:
        client.set(storage._session.prefix + "layout", "9")

    with pytest.raises(StorageUnusable, match="layout 9, but this release reads 6: name another"):
        storage.prepare()


# ---- a Redis at `maxmemory` (noeviction), which rejects puts and can be drained without help


PER_CHUNK = 100
VALUE = 1000


@pytest.fixture
def small_server(start: Callable[..., RedisServer]) -> RedisServer:
    return start("--maxmemory", "6mb", "--maxmemory-policy", "noeviction")


@pytest.fixture
def small(small_server: RedisServer) -> Iterator[RedisStorage]:
    with closing(RedisStorage(small_server.url, "readers", block_messages=10)) as storage:
        storage.prepare()
        yield storage


def large(start: int) -> Chunk:
    whole = chunk(start, start + PER_CHUNK, topic_id="A")
    values = BinaryColumn(np.full(PER_CHUNK, VALUE, np.int32), bytes(PER_CHUNK * VALUE))
    return replace(whole, columns=replace(whole.columns, values=values))


def filled(storage: RedisStorage) -> int:
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    with pytest.raises(StorageUnusable, match="maxmemory"):
        put(storage, *map(large, range(0, 1_000_000, PER_CHUNK)))
    stats = storage.stats()
    assert storage.stored_offsets([("t", 0)])[("t", 0)].next == stats.pending > 0
    return stats.pending


def test_workers_have_to_wait_before_redis_refuses_what_they_put(small: RedisStorage) -> None:
    assert why_full(small.stats()) is None
    count = filled(small)

    why = why_full(small.stats())

    assert why is not None
    assert re.fullmatch(r"the memory of unix:\S+ \(maxmemory\) has \S+ \S+ left, but 614.4 KiB should stay free", why)
    assert [message.offset for message in everything(small)] == list(range(count))
    assert why_full(small.stats()) is None
    assert total(small) == (0, 0, 0, 0)


def test_messages_of_a_full_redis_come_again_or_become_dead_letters(small: RedisStorage) -> None:
    count = filled(small)
    partly, wholly, dying, held = small.claim("a", 40, 60.0)

    assert small.settle(partly, [False] + [True] * 9) == Settled(gone=9, again=1)
    assert small.settle(wholly, [False] * 10) == Settled(again=10)
    assert settle_dead(small, dying, "x" * 5000) == Settled(dead=10)
    assert small.renew(held, 60.0)
    assert small.release("a", count_try=True) == 10
    small.dead_letter([Message("t", 1, 7, None, b"v", 0)], "no")

    assert total(small) == (count - 30, 0, 11, 11)
    assert sorted(message.offset for message in everything(small)) == [0, *range(10, 20), *range(30, count)]
    assert sorted((each.block.partition, each.offset) for each in small.dead()) == [
        *((0, offset) for offset in range(20, 30)),
        (1, 7),
    ]


@pytest.mark.shows("sinkers drain a Redis at `maxmemory`; then puts continue")
def test_sinkers_drain_a_full_redis_and_puts_go_on(
    small: RedisStorage, small_server: RedisServer, sinker: Callable[..., SinkerProcess], place: Path
) -> None:
    count = filled(small)
    settings = storage_settings(place, mode="redis", url=small_server.url, namespace="readers")

    sinkers = [sinker("fails_once", name, storage=settings) for name in ("sinker-0", "sinker-1")]
    eventually(lambda: is_empty(small), 60)

    assert put(small, large(count))[0].stored == PER_CHUNK
    eventually(lambda: is_empty(small), 60)
    assert [one.leave() for one in sinkers] == [0, 0]
    assert {offset for offset, _ in ledger()} == set(range(count + PER_CHUNK))
    assert total(small) == (0, 0, 0, 0)
