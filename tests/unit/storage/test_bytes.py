from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kctl_agent.message import Message
from kctl_agent.storage import base
from kctl_agent.storage.base import Storage
from kctl_agent.storage.block import BinaryColumn, Columns, pack
from kctl_agent.storage.chunk import Chunk, StoredOffset
from kctl_agent.storage.kinds import open_storage
from kctl_agent.storage.redis import dead_letter_store
from tests.conformance.given import everything, put, settle_dead, stored
from tests.redis_server import require_redis
from tests.servers.redis_server import RedisServer

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(params=["file", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer | None) -> Iterator[Storage]:
    """Built from settings, so that they apply to each kind."""
    settings: dict[str, Any] = {"mode": request.param, "path": str(tmp_path / "s"), "compression": "none"}
    if request.param == "redis":
        require_redis()
        assert redis_server is not None
        settings |= {"url": redis_server.url, "namespace": str(tmp_path).rpartition("/")[2]}
    settings |= {"block_messages": 500, "block_bytes": 100 * KIB, "limit": 9, "limit_bytes": 8, "dead_limit": 7}
    with closing(open_storage(settings)) as storage:
        storage.prepare()
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])
        yield storage


def of_sizes(*sizes: int) -> Columns:
    lengths = np.array(sizes, np.int32)
    offsets = np.arange(len(sizes), dtype=np.int64)
    return Columns(offsets, offsets, None, BinaryColumn(lengths, bytes(int(lengths.sum()))), None)


def put_sizes(storage: Storage, *sizes: int) -> None:
    put(storage, Chunk("t", 0, "A", 0, len(sizes), 1, of_sizes(*sizes)))


@pytest.mark.shows("blocks, puts, claims and pages of dead letters are bounded in bytes and messages")
def test_a_block_holds_no_more_bytes_than_it_may_but_one_message_at_least(storage: Storage) -> None:
    put_sizes(storage, *[40 * KIB] * 5, 300 * KIB, *[10] * 600)

    assert [block.count for block in storage.blocks()] == [2, 2, 1, 1, 500, 100]
    assert stored(storage) == list(range(606))
    limits = storage.stats().limits
    assert (limits.messages, limits.bytes, limits.dead) == (9, 8, 7)


def test_large_messages_are_claimed_few_at_a_time(storage: Storage) -> None:
    put_sizes(storage, *[100 * KIB] * 30)

    claims = storage.claim("a", 500, 60.0, limit_bytes=1 * MIB)

    assert [len(claim.messages) for claim in claims] == [1] * 10
    assert sum(len(claim.block.body) for claim in claims) <= 1 * MIB


def test_pages_and_blocks_of_requeues_are_bounded(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (base, dead_letter_store):
        monkeypatch.setattr(module, "PAGE_BYTES", 100 * KIB)
    put_sizes(storage, *[40 * KIB] * 10)
    for claim in storage.claim("a", 500, 60.0):
        settle_dead(storage, claim)

    assert [dead_letter.offset for dead_letter in storage.dead()] == list(range(10))
    assert storage.requeue_dead() == 10

    assert max(len(block.body) for block in storage.blocks()) < 101 * KIB
    assert sorted(message.offset for message in everything(storage)) == list(range(10))


@pytest.mark.parametrize("storage", ["redis"], indirect=True)
def test_a_put_into_redis_takes_a_bounded_part_of_large_messages_at_a_time(storage: Storage) -> None:
    columns = of_sizes(*[MIB] * 12)

    with storage.writer() as writer:
        portions = writer.portions([Chunk("t", 0, None, 0, 12, 1, columns)])
        parts = [len(part.columns) for (part,) in portions]

    assert sum(parts) == 12
    assert max(parts) <= 4


def test_runs_are_bounded_by_keys_values_and_headers_together() -> None:
    messages = [Message("t", 0, offset, b"k" * 10, b"v" * 20, 0, (("h", b"x" * 6),)) for offset in range(9)]
    columns = pack(messages)
    each = 30 + len(columns.headers.data) // 9 if columns.headers is not None else 0

    parts = list(columns.split(500, 2 * each))

    assert [len(part) for part in parts] == [2, 2, 2, 2, 1]
    assert [offset for part in parts for offset in part.offsets.tolist()] == list(range(9))
