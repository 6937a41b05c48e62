import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kctl_agent.message import Message
from kctl_agent.storage import base
from kctl_agent.storage.base import Storage
from kctl_agent.storage.block import BinaryColumn, Columns, pack
from kctl_agent.storage.chunk import Chunk, StoredOffset
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.kinds import open_storage
from kctl_agent.storage.limits import Free, StorageLimits, StorageStats, why_full
from kctl_agent.storage.redis import dead_letter_store
from tests.conformance.given import everything, put, settle_dead, stored
from tests.servers.redis_server import RedisServer, require_redis

EMPTY = StorageStats(0, 0, 0, 0, StorageLimits())
LIMITS = StorageLimits(messages=1000, bytes=5 << 30, dead=100)
GIB = 1 << 30


@pytest.mark.shows("workers stop at limits of messages, bytes, dead letters, disk and memory of a Redis")
@pytest.mark.shows("a disk with too few bytes, or less than 1 % of its inodes, left counts as full")
@pytest.mark.parametrize(
    ("stats", "why"),
    [
        ({"pending": 500, "processing": 300, "delayed": 199, "dead": 99, "bytes": 5 * GIB - 1}, None),
        ({"pending": 500, "processing": 300, "delayed": 200}, "holds 1,000 messages, and storage.limit is 1,000"),
        ({"bytes": 5 * GIB}, "holds 5.0 GiB, and storage.limit_bytes is 5.0 GiB"),
        ({"bytes": 5 * GIB, "dead": 7},
         "holds 5.0 GiB (7 dead letters among them), and storage.limit_bytes is 5.0 GiB"),
        ({"dead": 100}, "holds 100 dead letters, and storage.dead_limit is 100: `kctl storage dead list` shows them, "
         "`kctl storage dead requeue` and `dead delete` make room"),
        ({"free": Free("/x", GIB, GIB)}, None),
        ({"free": Free("/x", GIB - 1, GIB)}, "/x has 1024.0 MiB left, but 1.0 GiB should stay free"),
        ({"free": Free("/x", GIB, GIB, 0.01)}, None),
        ({"free": Free("/x", GIB, None, 0.0)}, None),
        ({"free": Free("/x", GIB, GIB, 0.004)}, "/x has 0.4% of its inodes left, but 1% should stay free"),
    ],
)  # fmt: skip
def test_each_limit_has_its_sentence(stats: dict[str, Any], why: str | None) -> None:
    assert why_full(replace(EMPTY, **stats, limits=LIMITS)) == (
        None if why is None else why if "free" in stats else f"the storage {why}"
    )


@pytest.mark.parametrize(
    "stats",
    [
        replace(EMPTY, pending=900),
        replace(EMPTY, bytes=int(4.5 * GIB)),
        replace(EMPTY, dead=90),
        replace(EMPTY, free=Free("the disk of /x", int(1.1 * GIB), GIB)),
    ],
)
def test_who_waits_for_room_goes_on_only_when_there_is_some_more(stats: StorageStats) -> None:
    assert why_full(replace(stats, limits=LIMITS)) is None
    assert why_full(replace(stats, limits=LIMITS), share=0.9) is not None


def test_limits_are_those_of_the_settings_and_0_is_none() -> None:
    settings = {"limit": 0, "limit_bytes": 5, "dead_limit": 6, "min_free_bytes": 7}

    assert StorageLimits.of(settings) == StorageLimits(None, 5, 6, 7)
    assert StorageLimits.of({}) == StorageLimits()


def test_a_file_storage_watches_its_disk(tmp_path: Path) -> None:
    with closing(FileStorage(tmp_path / "s", limits=StorageLimits(min_free_bytes=1 << 60))) as storage:
        storage.prepare()
        why = why_full(storage.stats()) or ""

    assert re.fullmatch(rf"the disk of {tmp_path} has \d.* left, but 1048576.0 TiB should stay free", why)


KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(params=["file", "redis"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer | None) -> Iterator[Storage]:
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
