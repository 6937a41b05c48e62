from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import resource
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kctl_agent.errors import StorageError
from kctl_agent.message import Message
from kctl_agent.storage.base import Storage, StorageUnusable
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.file import FileStorage, schema
from kctl_agent.storage.file import log as file_log
from kctl_agent.storage.file import storage as storage_module
from kctl_agent.storage.file import writer as file_writer
from kctl_agent.storage.file.checkpoint import copy
from kctl_agent.storage.file.log import note_sync_failure, sync_failures
from kctl_agent.storage.file.queue_table import MachineClock
from kctl_agent.storage.kinds import open_storage
from tests.conformance.given import chunk, everything, fill, offsets, put, stored, total
from tests.conftest import raising
from tests.unit.storage.conftest import Machine

FRAME_BYTES = 24 + 16384  # of the write-ahead log: a header and a page


def file_storage(path: Path, clock: MachineClock | None = None) -> FileStorage:
    storage = FileStorage(path, block_messages=3, clock=clock or MachineClock())
    storage.prepare()
    return storage


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "storage.sqlite"


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def storage(path: Path, machine: Machine) -> Iterator[FileStorage]:
    with closing(file_storage(path, machine)) as storage:
        yield storage


def test_a_file_that_is_no_database_or_of_another_version_is_rejected(path: Path) -> None:
    path.write_bytes(b"this is a letter to a friend, not a database " * 50)
    with pytest.raises(StorageUnusable, match="not a database"):
        file_storage(path)

    path.unlink()
    file_storage(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma user_version=99")

    with pytest.raises(StorageUnusable, match="version 99 of the storage, but this release reads version 5"):
        file_storage(path)


def test_after_a_boot_nothing_is_leased_or_delayed(path: Path, storage: FileStorage, machine: Machine) -> None:
    fill(storage, 6)
    (delayed,) = storage.claim("a", 3, 60.0)
    storage.settle(delayed, [False] * 3, retry_seconds=1e6)
    (leased,) = storage.claim("a", 3, 1e6)

    with closing(file_storage(path, Machine(since_boot=1.0, boot="second"))) as booted:
        claims = booted.claim("b", 100, 60.0)

        assert [(c.tries, offsets([c])) for c in claims] == [(1, [0, 1, 2]), (1, [3, 4, 5])]
        assert booted.settle(leased, [True] * 3).is_lost


def test_a_forked_child_opens_a_connection_of_its_own(storage: FileStorage) -> None:
    fill(storage, 6)
    assert offsets(storage.claim("parent", 3, 60.0)) == [0, 1, 2]

    def claim() -> None:
        assert offsets(storage.claim("child", 3, 60.0)) == [3, 4, 5]

    child = multiprocessing.get_context("fork").Process(target=claim)
    child.start()
    child.join()

    assert (child.exitcode, total(storage)) == (0, (0, 6, 0, 0))


@pytest.mark.shows("an exchanged or missing storage file is detected")
def test_a_file_exchanged_under_a_process_is_noticed_before_it_is_read(path: Path, storage: FileStorage) -> None:
    fill(storage, 3)
    older = path.with_name("older.sqlite")
    with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(older)) as copied:
        now.backup(copied)
    put(storage, chunk(3, 6))
    (claim, _) = storage.claim("a", 100, 60.0)
    with storage.writer() as writer:
        task = pickle.loads(pickle.dumps(storage))

        os.rename(older, path)
        with pytest.raises(StorageUnusable, match="sqlite-wal belongs to the previous file"):
            storage.stats()
        with pytest.raises(StorageUnusable, match="was replaced since this batch was planned"):
            task.writer()
        writer.put(chunk(6, 9))
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()

    assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 3, "what was put meanwhile is put again"
    assert storage.exchanges == 1
    assert storage.settle(claim, [True] * 3).is_lost
    with closing(pickle.loads(pickle.dumps(storage))) as task:
        put(task, chunk(3, 9))
    assert stored(storage) == list(range(9))


def test_a_file_that_is_gone_is_not_made_again_by_those_that_only_use_it(path: Path, storage: FileStorage) -> None:
    fill(storage, 3)
    aside = path.with_name("aside.sqlite")
    os.rename(path, aside)

    for use in (storage.stats, storage.writer, pickle.loads(pickle.dumps(storage)).stats):
        with pytest.raises(StorageUnusable, match="cannot be used"):
            use()
    assert not path.exists()

    os.rename(aside, path)
    assert stored(storage) == [0, 1, 2]
    assert storage.exchanges == 0

    for each in path.parent.glob(path.name + "*"):
        each.unlink()
    storage.close()
    with pytest.raises(StorageUnusable):
        storage.claim("a", 3, 60.0)
    storage.prepare()
    fill(storage, 3)
    assert stored(storage) == [0, 1, 2]


def test_disk_errors_of_a_task_end_its_put(path: Path, storage: FileStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "SYNC_BYTES", 1)
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    really, errors = os.fdatasync, [OSError(errno.EIO, os.strerror(errno.EIO))]  # Linux reports it to one sync only

    def fails_once(log: int) -> None:
        if errors:
            raise errors.pop()
        really(log)

    writer = storage.writer()
    monkeypatch.setattr(os, "fdatasync", fails_once)
    writer.put(chunk(0, 3))
    with pytest.raises(StorageUnusable, match=r"could not be synced: .*Input/output error"):
        writer.close()

    assert len(sync_failures(path)) == 1
    assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 3
    assert not sync_failures(path)


@pytest.mark.parametrize("first_gone", [0, 1, 3, -1], ids=["all", "the first page", "a part", "the last page"])
def test_what_memory_has_lost_of_a_log_that_was_not_synced_is_put_again_and_what_was_synced_stays(
    path: Path, storage: FileStorage, monkeypatch: pytest.MonkeyPatch, first_gone: int
) -> None:
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    put(storage, chunk(0, 3))
    log = Path(f"{path}-wal")
    synced = log.stat().st_size
    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", raising(OSError(errno.EIO, os.strerror(errno.EIO))))
        with pytest.raises(StorageUnusable):
            put(storage, chunk(3, 900))
    with log.open("r+b") as file:
        gone = range(synced, log.stat().st_size, FRAME_BYTES)[first_gone:]
        file.seek(gone[0])
        file.write(bytes(gone[-1] + FRAME_BYTES - gone[0] if first_gone != 1 else FRAME_BYTES))

    assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 3
    assert stored(storage) == [0, 1, 2]
    put(storage, chunk(3, 900))

    assert stored(storage) == list(range(900))
    assert [message.offset for message in everything(storage)] == list(range(900))


def test_who_began_before_a_failed_sync_elsewhere_begins_again(path: Path, storage: FileStorage) -> None:
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    writer = storage.writer()
    writer.put(chunk(0, 3))
    with closing(FileStorage(path)) as another:
        note_sync_failure(path)
        assert another.stored_offsets([("t", 0)])[("t", 0)].next == 3
        with pytest.raises(StorageUnusable, match="the disk failed in the meantime"):
            writer.close()

        assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 3


def test_nothing_is_copied_into_the_file_while_the_disk_fails(path: Path, storage: FileStorage) -> None:
    """SQLite does not check whether the log has what was written to it."""
    storage.init_offsets([StoredOffset("t", 0, "A", 7)])
    note_sync_failure(path)
    copy(path)
    assert next_in_the_file_alone(path) is None

    storage.stored_offsets([("t", 0)])
    copy(path)

    assert next_in_the_file_alone(path) == 7


def test_a_message_that_cannot_be_read_while_the_disk_fails_is_no_dead_letter(path: Path, storage: FileStorage) -> None:
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    put(storage, chunk(0, 3))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update block set body=zeroblob(length(body))")
    note_sync_failure(path)

    with pytest.raises(StorageUnusable, match="the disk has failed"):
        storage.claim("a", 10, 60.0)

    assert total(storage)[-1] == 0


def next_in_the_file_alone(path: Path) -> int | None:
    copy = path.with_name("copy")
    subprocess.run(["cp", path, copy], check=True)  # by a process that holds no lock on the file
    with closing(sqlite3.connect(copy)) as db:
        found = db.execute("select next from stored_offset").fetchone()
    return None if found is None else int(found[0])


def _put_where_files_end(storage: FileStorage) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    writer = storage.writer()
    try:
        writer.put(chunk(0, 9000))
    except StorageUnusable as error:
        os._exit(42 if "disk I/O error" in str(error) else 1)


def test_an_error_of_the_disk_that_sqlite_meets_is_noted_until_it_was_seen_to(path: Path, storage: FileStorage) -> None:
    storage.init_offsets([StoredOffset("t", 0, "A", 0)])
    storage.close()
    child = multiprocessing.get_context("fork").Process(target=_put_where_files_end, args=(storage,))
    child.start()
    child.join()
    assert child.exitcode == 42
    assert len(sync_failures(path)) == 1

    assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 0

    assert not sync_failures(path)


def test_who_sees_a_long_log_copies_it(path: Path, storage: FileStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (schema, file_log):
        monkeypatch.setattr(module, "LOG_BYTES", 200_000)
    monkeypatch.setattr(storage_module, "LONG_SECONDS", 0.0)
    fill(storage, 3000)
    assert Path(f"{path}-wal").stat().st_size > 200_000

    storage.stats()
    for thread in threading.enumerate():
        if thread.name == "storage-copy":
            thread.join()
    put(storage, chunk(3000, 3001))

    assert Path(f"{path}-wal").stat().st_size <= 200_000
    assert stored(storage) == list(range(3001))


def opened(path: Path, mode: str) -> Storage:
    settings = {"mode": mode, "path": str(path), "block_messages": 3, "compression": "none", "limit": 0}
    storage = open_storage(settings)
    storage.prepare()
    return storage


def test_directly_takes_only_dead_letters_which_are_requeued_where_there_is_a_queue(path: Path) -> None:
    with closing(opened(path, "directly")) as directly:
        assert directly.identity == f"directly:{path}"
        directly.dead_letter([Message("t", 0, 7, None, b"v", 1, (), 3)], "no", "A")
        with pytest.raises(StorageError, match="messages go to the handler and are not stored"):
            directly.writer()
        with pytest.raises(StorageError, match="no queue"):
            directly.requeue_dead()
        assert directly.claim("a", 10, 60.0) == []
    with pytest.raises(StorageError, match="known are: file, redis, directly, lake"):
        opened(path, "tape")

    with closing(opened(path, "file")) as file:
        assert file.requeue_dead() == 1
        assert offsets(file.claim("a", 10, 60.0)) == [7]
