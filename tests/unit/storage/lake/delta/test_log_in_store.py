"""The log of a table in an object store: what is asked of the store, and a commit that another writer overwrites. The
store is in memory, where delta-rs does not find it: the table is made in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore

from kctl_agent.storage.base import Advance, StorageUnusable, StoredOffset
from kctl_agent.storage.lake.delta import log_reader, table
from kctl_agent.storage.lake.delta.log import LAST_CHECKPOINT, LOG, LogUnreadable, entry_name, write_entry
from kctl_agent.storage.lake.delta.log_reader import DeltaLogReader
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.object_store import ObjectStore
from tests.unit.storage.lake.test_storage import FIELDS, GROUP, TOPIC_ID, TP, at, begun, opened, schema

NEWEST = 3000
"""The version of the checkpoint of a table that has lived for long."""


@pytest.fixture
def folder(path: Path) -> S3Folder:
    """A table of one commit."""
    store: Any = MemoryStore()
    made = S3Folder(ObjectStore("lake", "http://127.0.0.1:1", "us-east-1"), "orders", store)
    opened(path)
    made.write(entry_name(0), (path / entry_name(0)).read_bytes())
    return made


@pytest.fixture
def storage(folder: S3Folder) -> LakeStorage:
    storage = LakeStorage(folder)
    storage.fit(schema(*FIELDS))
    storage.bind(GROUP)
    storage.init_offsets([StoredOffset(*TP, TOPIC_ID, 100)])
    return storage


def grown(folder: S3Folder, path: Path) -> None:
    """The log has a checkpoint after so many entries, which nobody may read."""
    DeltaTable(path).create_checkpoint()
    [checkpoint] = (path / LOG).glob("*.checkpoint.parquet")
    for version in range(NEWEST + 1):
        folder.write(entry_name(version), b"damaged")
    folder.write(f"{LOG}/{NEWEST:020}.checkpoint.parquet", checkpoint.read_bytes())
    folder.write(LAST_CHECKPOINT, json.dumps({"version": NEWEST, "size": 1}).encode())


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the store has listed, or answered for."""
    made, names = S3Folder._file, []

    def noted(folder: S3Folder, found: Any) -> Any:
        names.append(found["path"])
        return made(folder, found)

    monkeypatch.setattr(S3Folder, "_file", noted)
    return names


@pytest.mark.shows("a log is read from its newest checkpoint on; a damaged one is passed over and named")
def test_of_a_log_only_what_follows_its_newest_checkpoint_is_listed(
    folder: S3Folder, path: Path, listed: list[str]
) -> None:
    grown(folder, path)
    reader = DeltaLogReader(folder)

    assert reader.newest().version == NEWEST
    assert len(listed) < 20

    folder.write(LAST_CHECKPOINT, json.dumps({"version": NEWEST, "size": 2}).encode())
    listed.clear()
    assert reader.newest().version == NEWEST
    assert len(listed) < 20


@pytest.mark.parametrize("pointer", [b"", b"\0\0", b"[]", b'{"version": "x"}', b'{"version": 70}'])
def test_a_pointer_that_is_damaged_or_has_a_checkpoint_that_is_not_there_is_passed_over(
    folder: S3Folder, path: Path, pointer: bytes
) -> None:
    DeltaTable(path).create_checkpoint()
    for file in (path / LOG).glob("*"):
        folder.write(f"{LOG}/{file.name}", file.read_bytes())
    folder.write(LAST_CHECKPOINT, pointer)

    assert LogState.read(folder).log.checkpoint == 0


def test_a_log_that_moves_on_whenever_it_is_read_is_given_up(
    storage: LakeStorage, folder: S3Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, times = LogState.read.__func__, []  # type: ignore[attr-defined]

    def overtaken(cls: type[LogState], table: Folder) -> LogState:
        times.append(1)
        folder.write(LAST_CHECKPOINT, b"{}")
        assert len(times) < 100
        state: LogState = read(cls, table)
        return state

    monkeypatch.setattr(LogState, "read", classmethod(overtaken))

    with pytest.raises(LogUnreadable, match="checkpoints of its log are written faster than it can be read"):
        DeltaLogReader(folder).newest()


def test_a_process_that_has_stood_still_reads_a_checkpoint_instead_of_each_entry(
    storage: LakeStorage, folder: S3Folder, path: Path, listed: list[str]
) -> None:
    reader = DeltaLogReader(folder)
    before = reader.newest().version
    for start in range(100, 100 + 3 * log_reader.MOST_ENTRIES):
        write_entry(folder, before + start - 99, [{"commitInfo": {"number": start}}])
    DeltaTable(path).create_checkpoint()
    [checkpoint] = (path / LOG).glob("*.checkpoint.parquet")
    newest = before + 3 * log_reader.MOST_ENTRIES
    folder.write(f"{LOG}/{newest:020}.checkpoint.parquet", checkpoint.read_bytes())
    folder.write(LAST_CHECKPOINT, json.dumps({"version": newest}).encode())
    listed.clear()

    assert reader.newest().version == newest
    assert len(listed) < log_reader.MOST_ENTRIES + 20


def overwrite(folder: S3Folder, version: int) -> None:
    """As Delta's own does for a Spark that had seen no such entry before."""
    folder.write(entry_name(version), b'{"commitInfo":{"operation":"WRITE"}}\n')


def test_a_commit_that_another_writer_overwrites_is_not_taken_for_stored(
    storage: LakeStorage, folder: S3Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overwritten(*args: Any) -> bytes | None:
        written = write_entry(*args)
        overwrite(folder, 2)
        return written

    with monkeypatch.context() as patched:
        patched.setattr(table, "write_entry", overwritten)
        with pytest.raises(StorageUnusable, match="has overwritten version 2 of the table"):
            begun(storage, 100, 110).commit()

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)


def test_a_commit_that_another_writer_has_overwritten_later_is_reported_once_and_read_again(
    storage: LakeStorage, folder: S3Folder
) -> None:
    """Somebody has committed upon it meanwhile."""
    begun(storage, 100, 110).commit()
    write_entry(folder, 3, [{"commitInfo": {"operation": "WRITE"}}])
    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 110, 1)
    overwrite(folder, 2)

    with pytest.raises(StorageUnusable, match="has overwritten version 2 of the table"):
        begun(storage, 110, 120)

    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 100, 1)
    begun(storage, 100, 120).commit()


def test_a_version_that_is_overwritten_while_the_next_one_is_written_is_reported_by_its_number(
    storage: LakeStorage, folder: S3Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(storage, 100, 110).commit()
    late = begun(storage, 110, 120)

    def overwritten(*args: Any) -> bytes | None:
        written = write_entry(*args)
        overwrite(folder, 2)
        return written

    monkeypatch.setattr(table, "write_entry", overwritten)
    with pytest.raises(StorageUnusable, match="has overwritten version 2 of the table"):
        late.commit()


def test_what_a_commit_asks_of_a_store_does_not_grow(storage: LakeStorage, requests: list[str]) -> None:
    for start in range(100, 140, 10):
        requests.clear()
        storage.advance_offsets([Advance(*TP, 1, start, start + 10)])

    assert sorted(requests) == ["get"] * 5 + ["list"] * 4 + ["put"]


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []

    def noting(name: str, request: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **more: Any) -> Any:
            made.append(name)
            return request(*args, **more)

        return noted

    for name in ("get", "head", "put", "list", "copy", "delete"):
        monkeypatch.setattr(obstore, name, noting(name, getattr(obstore, name)))
    return made
