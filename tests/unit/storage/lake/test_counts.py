"""What a worker publishes of its table: counted every now and then, never in the way of a commit."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from kctl_agent.storage.base import StorageUnusable, StoredOffset
from kctl_agent.storage.lake import LakeStorage, counts
from tests.unit.storage.lake.test_storage import TOPIC_ID, TP, begun, opened


@pytest.fixture
def storage(path: Path) -> LakeStorage:
    made = opened(path)
    made.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    begun(made, 0, 10).commit()
    return made


def test_a_table_is_counted_again_only_after_a_while_and_whoever_has_committed(
    storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = storage.stats().counts
    begun(opened(path), 10, 20).commit()
    soon = storage.stats().counts
    monkeypatch.setattr(storage._counter, "_next_at", 0.0)
    later = storage.stats().counts

    assert first is not None
    assert (first.version, first.rows, first.files, first.small_files) == (2, 10, 1, 1)
    assert soon == first
    assert later is not None
    assert (later.version, later.rows, later.files, later.small_files) == (3, 20, 2, 2)
    assert later.bytes > first.bytes
    assert later == storage.count()


def test_while_a_batch_is_committed_the_counts_are_those_before(storage: LakeStorage, path: Path) -> None:
    other = opened(path)
    is_busy, may_end = threading.Event(), threading.Event()

    def use() -> None:
        with other.table.latest():
            is_busy.set()
            may_end.wait(10)

    thread = threading.Thread(target=use)
    thread.start()
    is_busy.wait(10)
    during = other.stats()
    may_end.set()
    thread.join()

    assert during.counts is None
    assert other.stats().counts == storage.count()


def test_before_the_first_batch_and_of_a_table_that_cannot_be_read_nothing_is_known(
    storage: LakeStorage, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LakeStorage(path.parent / "none").stats().counts is None
    assert storage.stats().counts is not None
    shutil.rmtree(path / "_delta_log")
    (path / "_delta_log").mkdir()
    (path / "_delta_log" / f"{0:020}.json").write_text("no JSON")
    monkeypatch.setattr(storage._counter, "_next_at", 0.0)

    assert storage.stats().counts is None


def test_counting_takes_one_hundredth_of_the_time_at_the_most(
    storage: LakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([100.0, 107.0, 806.0, 807.0, 808.0])
    asked = []
    monkeypatch.setattr(counts, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(counts, "count", lambda *_: asked.append(1))

    for _ in range(3):
        storage._counter.last()

    assert len(asked) == 2


def test_commits_that_fail_and_those_that_are_decided_anew_are_counted(
    storage: LakeStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, refusals = DeltaTable.create_write_transaction, [CommitFailedError("metadata changed")]

    def refused(*args: object, **more: object) -> None:
        if refusals:
            raise refusals.pop()
        write(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(DeltaTable, "create_write_transaction", refused)
    begun(storage, 10, 20).commit()
    assert (storage.stats().commits_failed, storage.stats().commits_retried) == (0, 1)

    refusals.extend([CommitFailedError("metadata changed")] * 10)
    with pytest.raises(StorageUnusable, match="came first 5 times"):
        begun(storage, 20, 30).commit()
    assert (storage.stats().commits_failed, storage.stats().commits_retried) == (1, 6)
