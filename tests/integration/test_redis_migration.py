"""What earlier commits wrote into Redis (`redis_layout_3.json`, as their code wrote it) becomes a storage of today,
whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from kctl.testing.redis_server import RedisServer
from kctl_agent.message import Message
from kctl_agent.storage.base import Binding, Claim, OtherGroup, Settled, StorageUnusable, StoredOffset
from kctl_agent.storage.redis import RedisStorage
from tests.conformance.given import chunk, everything, put, total
from tests.integration.test_storage_redis import client_of, opened, server, start

__all__ = ["server", "start"]

TOKEN = "8b121b2b8e1c44339ad8ae31b77e6739"
"""Of the lease in the file."""
PREFIX = "{kctl:readers}:"


def write(client: Any, layout: str) -> None:
    """All keys and values, as an earlier commit left them; in layouts before 3 a stored offset had no version."""
    found = json.loads(Path(__file__).with_name("redis_layout_3.json").read_text(encoding="utf-8"))
    for key, value in found.items():
        name = key.encode("latin-1")
        match value:
            case {"hash": fields}:
                client.hset(name, mapping={a.encode("latin-1"): b.encode("latin-1") for a, b in fields.items()})
            case {"zset": members}:
                client.zadd(name, {member.encode("latin-1"): score for member, score in members})
            case {"set": members}:
                client.sadd(name, *(member.encode("latin-1") for member in members))
            case {"string": text}:
                client.set(name, text.encode("latin-1"))
    client.set(PREFIX + "layout", layout)
    if layout != "3":
        client.delete(PREFIX + "storage")
        for key in list(client.scan_iter(PREFIX + "mark:*")):
            client.hdel(key, "version", "put")
            client.hset(key, "committed", 3)


@pytest.fixture(params=["2", "3"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def storage(layout: str, server: RedisServer) -> Iterator[RedisStorage]:
    with client_of(server) as client:
        write(client, layout)
    with closing(opened(server.url)) as storage:
        yield storage


def test_everything_is_still_there(layout: str, storage: RedisStorage) -> None:
    assert [(p.topic, p.partition, p.pending, p.processing, p.delayed, p.dead) for p in storage.stats().partitions] == [
        ("t", 0, 3, 3, 2, 5),
        ("t", 1, 6, 0, 0, 0),
        ("t", 3, 0, 0, 0, 1),
    ]
    versions = (1, 2) if layout == "3" else (0, 0)
    assert storage.stored_offsets([("t", 0), ("t", 1), ("t", 3)]) == {
        ("t", 0): StoredOffset("t", 0, "A", 15, versions[0]),
        ("t", 1): StoredOffset("t", 1, "B", 13, versions[1]),
    }
    assert [(x.block.partition, x.offset, x.tries, x.error, x.is_damaged) for x in storage.dead()] == [
        (0, 7, 1, "ValueError: käse\nTraceback", False),
        (0, 8, 1, "ValueError: käse\nTraceback", False),
        (3, 7, 4, "handler refused", False),
        (0, 9, 0, "these bytes are not a block", True),
    ]
    assert [(group.cause, group.count) for group in storage.dead_groups()] == [
        (("ValueError", ""), 2),
        (("handler refused", ""), 1),
        (("these bytes are not a block", ""), 1),
    ]
    assert [x.messages() for x in storage.dead()][2] == [Message("t", 3, 7, b"k", None, 5, (("h", b"\xff"),), 4)]


def test_it_goes_on_where_it_was(layout: str, storage: RedisStorage) -> None:
    (block,) = [block for block in storage.blocks() if block.first == 3]
    leased = Claim("2", TOKEN, "b", block, 0, 0.0, block.messages())

    assert storage.renew(leased, 60.0)
    assert storage.settle(leased, [True, False, True], max_tries=5) == Settled(gone=2, again=1)
    (done,) = put(storage, chunk(14, 18, version=1 if layout == "3" else 0))
    assert (done.stored, done.skipped) == (3, 1)
    storage.dead_letter([Message("t", 3, 7, b"k", None, 5, (("h", b"\xff"),), 4)], "once more")
    assert storage.requeue_dead() == 3, "a new dead letter takes the place of one of then"
    storage.requeue_stuck()

    found = {(message.partition, message.offset) for message in everything(storage)}
    assert found == {(0, offset) for offset in (1, 2, 4, 7, 8, *range(12, 18))} | {
        *((1, offset) for offset in range(7, 13)),
        (3, 7),
    }
    assert total(storage) == (0, 0, 0, 3)


def test_a_storage_keeps_its_owner(layout: str, storage: RedisStorage) -> None:
    id_ = storage.bind(Binding("orders", "K1"))

    assert id_ == storage.bind(Binding("orders", "K1"))
    with pytest.raises(OtherGroup, match="belongs to group orders of cluster K1"):
        storage.bind(Binding("others", "K1"))
    assert (id_ == "8c1b44a67fb74a42bd7fb8e4e2a866fd") == (layout == "3"), "before, it had none"


def test_no_key_of_then_is_left_and_the_next_start_changes_nothing(storage: RedisStorage, server: RedisServer) -> None:
    with client_of(server) as client:
        assert list(client.scan_iter(PREFIX + "mark:*")) == []
        assert client.get(PREFIX + "layout") == b"6"
        before = {key: client.dump(key) for key in client.scan_iter("*")}

        opened(server.url).close()

        assert {key: client.dump(key) for key in client.scan_iter("*")} == before


def test_a_full_redis_is_migrated_too(start: Callable[..., RedisServer]) -> None:
    server = start("--maxmemory-policy", "noeviction")
    with client_of(server) as client:
        write(client, "3")
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.OutOfMemoryError):
            client.set("more", b"x")

        with closing(opened(server.url)) as storage:
            assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 15


def test_a_storage_without_a_layout_that_an_earlier_commit_went_on_with_is_migrated_too(server: RedisServer) -> None:
    with client_of(server) as client:
        write(client, "3")
        client.delete(PREFIX + "layout")

        with closing(opened(server.url)) as storage:
            assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 15


def test_a_later_layout_is_refused_and_left_alone(server: RedisServer) -> None:
    with client_of(server) as client:
        write(client, "7")
        with pytest.raises(StorageUnusable, match="has layout 7; this release reads 1 to 6"):
            opened(server.url)

        assert client.exists(PREFIX + "mark:t:0")
