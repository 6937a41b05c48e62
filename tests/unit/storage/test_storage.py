"""What every storage guarantees: one suite over all of them."""

from __future__ import annotations

import pickle
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from kctl_agent.storage import open_storage
from kctl_agent.storage.base import (
    Chunk,
    GapRefused,
    Mark,
    MarkMissing,
    Put,
    Storage,
    StorageUnusable,
    TopicRecreated,
)
from kctl_agent.storage.block import BinaryColumn, Columns


def settings(path: Path, **given: object) -> dict[str, object]:
    return {"mode": "file", "path": str(path), "block_messages": 3, "compression": "none", "limit": 0, **given}


@pytest.fixture(params=["file"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    storage = open_storage(settings(tmp_path / "deep" / "storage.sqlite", mode=request.param))
    storage.prepare()
    return storage


def chunk(start: int, end: int, offsets: range | list[int] | None = None, topic_id: str | None = "A") -> Chunk:
    at = np.array(list(range(start, end) if offsets is None else offsets), np.int64)
    data = b"".join(b"%04d" % offset for offset in at)
    values = BinaryColumn(np.full(len(at), 4, np.int32), data)
    return Chunk("t", 0, topic_id, start, end, start, Columns(at, at * 10, None, values, None))


def put(storage: Storage, *chunks: Chunk) -> list[Put]:
    with storage.writer() as writer:
        return [writer.put(one) for one in chunks]


def stored(storage: Storage) -> list[int]:
    return [record.offset for block in storage.blocks() for record in block.records()]


def next_offset(storage: Storage) -> int:
    return storage.marks([("t", 0)])[("t", 0)].next


def test_a_put_stores_the_messages_and_moves_the_mark_together(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 0, None)])

    (done,) = put(storage, chunk(0, 10))

    assert (done.stored, done.skipped) == (10, 0)
    assert stored(storage) == list(range(10))
    assert storage.marks([("t", 0)])[("t", 0)] == Mark("t", 0, "A", 10, 0)
    assert [record.value for block in storage.blocks() for record in block.records()][3] == b"0003"


def test_what_lies_below_the_mark_is_skipped(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 0, None)])
    put(storage, chunk(0, 10))

    again, partly = put(storage, chunk(0, 10), chunk(5, 12))

    assert (again.stored, again.skipped) == (0, 10)
    assert (partly.stored, partly.skipped) == (2, 5)
    assert stored(storage) == list(range(12))


def test_a_range_that_begins_above_the_mark_is_refused_and_nothing_is_written(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 4, None)])

    with pytest.raises(GapRefused, match="begins at 7, above the mark 4: offsets 4 to 6 would be lost"):
        put(storage, chunk(7, 9))

    assert stored(storage) == []
    assert next_offset(storage) == 4


def test_holes_inside_a_range_are_no_gap(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 4, None)])

    put(storage, chunk(4, 20, [9, 11, 12, 19]))

    assert stored(storage) == [9, 11, 12, 19]
    assert next_offset(storage) == 20


def test_a_partition_without_a_mark_and_another_incarnation_of_a_topic_are_refused(storage: Storage) -> None:
    with pytest.raises(MarkMissing):
        put(storage, chunk(0, 3))
    storage.place_marks([Mark("t", 0, "A", 0, None)])
    with pytest.raises(TopicRecreated):
        put(storage, chunk(0, 3, topic_id="B"))

    assert stored(storage) == []


def test_marks_move_back_only_by_placing_them(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 10, 5)])

    storage.advance_marks({("t", 0): 7})
    assert next_offset(storage) == 10
    storage.advance_marks({("t", 0): 12})
    assert next_offset(storage) == 12
    storage.record_committed({("t", 0): 12, ("t", 99): 5})
    assert storage.marks([("t", 0), ("t", 99)]) == {("t", 0): Mark("t", 0, "A", 12, 12)}
    storage.place_marks([Mark("t", 0, "B", 3, 3)])
    assert storage.marks([("t", 0)]) == {("t", 0): Mark("t", 0, "B", 3, 3)}


def test_stats_count_messages_and_bytes(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 0, None)])
    put(storage, chunk(0, 10))

    stats = storage.stats()

    assert (stats.pending, stats.processing, stats.dead, stats.limit) == (10, 0, 0, None)
    assert stats.bytes == sum(len(block.body) for block in storage.blocks())


def test_blocks_hold_at_most_the_configured_number_of_messages(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 0, None)])
    put(storage, chunk(0, 10))

    assert [block.count for block in storage.blocks()] == [3, 3, 3, 1]


def test_a_storage_travels_to_an_executor(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 0, None)])

    put(pickle.loads(pickle.dumps(storage)), chunk(0, 2))

    assert stored(storage) == [0, 1]


def test_preparing_again_keeps_everything(storage: Storage) -> None:
    storage.place_marks([Mark("t", 0, "A", 0, None)])
    put(storage, chunk(0, 2))

    storage.prepare()

    assert stored(storage) == [0, 1]


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    open_storage(settings(path)).prepare()
    with sqlite3.connect(path) as db:
        db.execute("pragma user_version=99")
    db.close()

    with pytest.raises(StorageUnusable, match="version 99"):
        open_storage(settings(path)).prepare()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(b"this is a letter to a friend, not a database " * 50)

    with pytest.raises(StorageUnusable, match="not a database"):
        open_storage(settings(path)).prepare()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StorageUnusable, match="cannot make the folder"):
        open_storage(settings(tmp_path / "file" / "s.sqlite")).prepare()
