from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.limits import Free, StorageLimits, StorageStats, why_full

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
    ],
)  # fmt: skip
def test_each_limit_has_its_sentence(stats: dict[str, Any], why: str | None) -> None:
    assert why_full(replace(EMPTY, **stats, limits=LIMITS)) == (None if why is None else f"the storage {why}")


@pytest.mark.parametrize(
    ("free", "why"),
    [
        ((GIB, GIB), None),
        ((GIB - 1, GIB), "1024.0 MiB left, and 1.0 GiB should stay free"),
        ((GIB, GIB, 0.01), None),
        ((GIB, None, 0.0), None),
        ((GIB, GIB, 0.004), "0.4% of its inodes left, and 1% should stay free"),
    ],
)
def test_a_full_disk_has_its_sentence(free: tuple[Any, ...], why: str | None) -> None:
    stats = replace(EMPTY, free=Free("the disk of /x", *free))

    assert why_full(stats) == (None if why is None else f"the disk of /x has {why}")


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
        stats = storage.stats()

    assert stats.free is not None
    assert 0 < stats.free.bytes < 1 << 60
    why = why_full(stats)
    assert why is not None
    assert why.startswith(f"the disk of {tmp_path} has ")
    assert why.endswith(" left, and 1048576.0 TiB should stay free")
