"""A Redis at `maxmemory` (noeviction) rejects puts, and can be drained without help."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from kctl_agent.message import Message
from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.block import BinaryColumn, Columns
from kctl_agent.storage.chunk import Chunk, StoredOffset
from kctl_agent.storage.claim import Settled
from kctl_agent.storage.limits import why_full
from kctl_agent.storage.redis import RedisStorage
from tests.conformance.given import everything, is_empty, put, settle_dead, total
from tests.conftest import eventually
from tests.integration.sinker_handlers import ledger
from tests.integration.sinkers import SinkerProcess, place, sinker, storage_settings
from tests.servers.redis_server import RedisServer, require_redis

__all__ = ["place", "sinker"]

PER_CHUNK = 100
VALUE = 1000


@pytest.fixture
def server(short_dir: Any) -> Iterator[RedisServer]:
    require_redis()
    with RedisServer(short_dir / "redis", "--maxmemory", "6mb", "--maxmemory-policy", "noeviction") as server:
        yield server


@pytest.fixture
def storage(server: RedisServer) -> Iterator[RedisStorage]:
    with closing(RedisStorage(server.url, "readers", block_messages=10)) as storage:
        storage.prepare()
        yield storage


def large(start: int) -> Chunk:
    found = np.arange(start, start + PER_CHUNK, dtype=np.int64)
    values = BinaryColumn(np.full(PER_CHUNK, VALUE, np.int32), bytes(PER_CHUNK * VALUE))
    return Chunk("t", 0, "A", start, start + PER_CHUNK, 1, Columns(found, found, None, values, None))


def filled(storage: RedisStorage) -> int:
    """Puts until the storage rejects a message; returns how many it has stored."""
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    with pytest.raises(StorageUnusable, match="maxmemory"):
        put(storage, *map(large, range(0, 1_000_000, PER_CHUNK)))
    stats = storage.stats()
    assert storage.stored_offsets([("t", 0)])[("t", 0)].next == stats.pending > 0
    return stats.pending


def test_workers_have_to_wait_before_redis_refuses_what_they_put(storage: RedisStorage) -> None:
    assert why_full(storage.stats()) is None
    count = filled(storage)

    why = why_full(storage.stats())

    assert why is not None
    assert re.fullmatch(r"the memory of unix:\S+ \(maxmemory\) has \S+ \S+ left, but 614.4 KiB should stay free", why)
    assert [message.offset for message in everything(storage)] == list(range(count))
    assert why_full(storage.stats()) is None
    assert total(storage) == (0, 0, 0, 0)


def test_messages_of_a_full_redis_come_again_or_become_dead_letters(storage: RedisStorage) -> None:
    count = filled(storage)
    partly, wholly, dying, held = storage.claim("a", 40, 60.0)

    assert storage.settle(partly, [False] + [True] * 9) == Settled(gone=9, again=1)
    assert storage.settle(wholly, [False] * 10) == Settled(again=10)
    assert settle_dead(storage, dying, "x" * 5000) == Settled(dead=10)
    assert storage.renew(held, 60.0)
    assert storage.release("a", count_try=True) == 10
    storage.dead_letter([Message("t", 1, 7, None, b"v", 0)], "no")

    assert total(storage) == (count - 30, 0, 11, 11)
    assert sorted(message.offset for message in everything(storage)) == [0, *range(10, 20), *range(30, count)]
    assert sorted((each.block.partition, each.offset) for each in storage.dead()) == [
        *((0, offset) for offset in range(20, 30)),
        (1, 7),
    ]


@pytest.mark.shows("sinkers drain a Redis at `maxmemory`; then puts continue")
def test_sinkers_drain_a_full_redis_and_puts_go_on(
    storage: RedisStorage, server: RedisServer, sinker: Callable[..., SinkerProcess], place: Any
) -> None:
    count = filled(storage)
    settings = storage_settings(place, mode="redis", url=server.url, namespace="readers")

    sinkers = [sinker("fails_once", name, storage=settings) for name in ("sinker-0", "sinker-1")]
    eventually(lambda: is_empty(storage), 60)

    assert put(storage, large(count))[0].stored == PER_CHUNK
    eventually(lambda: is_empty(storage), 60)
    assert [one.leave() for one in sinkers] == [0, 0]
    assert {offset for offset, _ in ledger()} == set(range(count + PER_CHUNK))
    assert total(storage) == (0, 0, 0, 0)
