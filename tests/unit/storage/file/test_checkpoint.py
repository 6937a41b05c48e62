"""The log is copied into the file while no commit can restart the log; SQLite's WAL-reset bug therefore cannot
occur."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kctl_agent.storage.chunk import Advance
from kctl_agent.storage.file import FileStorage, log, schema
from kctl_agent.storage.file import storage as storage_module
from kctl_agent.storage.file.checkpoint import copy, reading, writing
from kctl_agent.storage.file.schema import connect
from tests.conformance.given import chunk, fill, put, stored


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.sqlite"


@pytest.fixture
def storage(path: Path) -> Iterator[FileStorage]:
    with closing(FileStorage(path, block_messages=3)) as storage:
        storage.prepare()
        fill(storage, 300)
        yield storage


def generation(path: Path) -> bytes:
    """The salts in the log's header, which change when the log restarts (https://sqlite.org/walformat.html)."""
    with Path(f"{path}-wal").open("rb") as log:
        return log.read(32)[16:24]


def checkpoint(db: sqlite3.Connection) -> bool:
    is_busy, pages, copied = db.execute("pragma wal_checkpoint(passive)").fetchone()
    return not is_busy and pages == copied


def commit(storage: FileStorage) -> None:
    stored = storage.stored_offsets([("t", 0)])[("t", 0)]
    storage.advance_offsets([Advance("t", 0, stored.version, stored.next, stored.next + 1)])


def test_while_a_copy_reads_commits_continue_and_none_restarts_the_log(path: Path, storage: FileStorage) -> None:
    before = generation(path)
    with closing(connect(path)) as db, closing(connect(path)) as guard:
        with reading(guard):
            assert checkpoint(db), "all of it is copied, as the bug needs it"
            commit(storage)
            commit(storage)
            assert generation(path) == before

        assert checkpoint(db)
    commit(storage)
    assert generation(path) != before

    before = generation(path)
    copy(path)
    assert generation(path) == before
    commit(storage)
    assert generation(path) != before


def test_where_all_was_copied_before_a_copy_that_reads_copies_nothing(path: Path, storage: FileStorage) -> None:
    copy(path)
    with closing(connect(path)) as db, closing(connect(path)) as guard, reading(guard):
        commit(storage)  # restarts the log, because the guard reads from the file

        _, pages, copied = db.execute("pragma wal_checkpoint(passive)").fetchone()

        assert (pages > 0, copied) == (True, 0)


def test_while_the_rest_is_copied_no_process_commits(path: Path, storage: FileStorage) -> None:
    with closing(connect(path)) as db, closing(connect(path)) as guard, writing(guard):
        db.execute("pragma busy_timeout=0")

        with pytest.raises(sqlite3.OperationalError, match="locked"):
            db.execute("begin immediate")

        assert checkpoint(db)
    commit(storage)


def test_who_sees_a_long_log_copies_it(path: Path, storage: FileStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (schema, log):
        monkeypatch.setattr(module, "LOG_BYTES", 200_000)
    monkeypatch.setattr(storage_module, "LONG_SECONDS", 0.0)
    storage.close()
    storage.stats()
    put(storage, chunk(300, 3000))
    assert Path(f"{path}-wal").stat().st_size > 200_000

    storage.stats()  # as a sinker or a worker may do
    join_copies()
    commit(storage)

    assert Path(f"{path}-wal").stat().st_size <= 200_000
    assert stored(storage) == list(range(3000))


def join_copies() -> None:
    for thread in threading.enumerate():
        if thread.name == "storage-copy":
            thread.join()
