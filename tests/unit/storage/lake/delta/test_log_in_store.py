"""Requests to an object store for a table's log, and a commit that another writer overwrites.

The store is in memory; the table is made in a folder, because delta-rs cannot open the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from deltalake import DeltaTable

from kctl_agent.storage.chunk import Advance, StoredOffset
from kctl_agent.storage.lake.delta.log import LAST_CHECKPOINT, LOG, LogUnreadable, entry_name
from kctl_agent.storage.lake.delta.log_reader import DeltaLogReader
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.folder import Folder
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import FIELDS, GROUP, TOPIC_ID, TP, opened, schema

NEWEST = 3000


@pytest.fixture
def with_table(folder: S3Folder, path: Path) -> S3Folder:
    opened(path)
    folder.write(entry_name(0), (path / entry_name(0)).read_bytes())
    return folder


@pytest.fixture
def storage(with_table: S3Folder) -> LakeStorage:
    storage = LakeStorage(with_table)
    storage.fit(schema(*FIELDS))
    storage.bind(GROUP)
    storage.init_offsets([StoredOffset(*TP, TOPIC_ID, 100)])
    return storage


def grown(folder: S3Folder, path: Path) -> None:
    """The log has a checkpoint after `NEWEST` entries, which are damaged so that reading them fails."""
    DeltaTable(path).create_checkpoint()
    [checkpoint] = (path / LOG).glob("*.checkpoint.parquet")
    for version in range(NEWEST + 1):
        folder.write(entry_name(version), b"damaged")
    folder.write(f"{LOG}/{NEWEST:020}.checkpoint.parquet", checkpoint.read_bytes())
    folder.write(LAST_CHECKPOINT, json.dumps({"version": NEWEST, "size": 1}).encode())


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made, names = S3Folder._file, []

    def noted(folder: S3Folder, found: Any) -> Any:
        names.append(found["path"])
        return made(folder, found)

    monkeypatch.setattr(S3Folder, "_file", noted)
    return names


def test_only_the_log_after_its_newest_checkpoint_is_listed(
    with_table: S3Folder, path: Path, listed: list[str]
) -> None:
    folder = with_table
    grown(folder, path)
    reader = DeltaLogReader(folder)

    assert reader.newest().version == NEWEST
    assert len(listed) < 20

    folder.write(LAST_CHECKPOINT, json.dumps({"version": NEWEST, "size": 2}).encode())
    listed.clear()
    assert reader.newest().version == NEWEST
    assert len(listed) < 20


@pytest.mark.parametrize("pointer", [b"", b"\0\0", b"[]", b'{"version": "x"}', b'{"version": 70}'])
def test_a_damaged_or_wrong_pointer_is_passed_over(with_table: S3Folder, path: Path, pointer: bytes) -> None:
    folder = with_table
    DeltaTable(path).create_checkpoint()
    for file in (path / LOG).glob("*"):
        folder.write(f"{LOG}/{file.name}", file.read_bytes())
    folder.write(LAST_CHECKPOINT, pointer)

    assert LogState.read(folder).log.checkpoint == 0


def test_a_log_moving_on_is_given_up(storage: LakeStorage, folder: S3Folder, monkeypatch: pytest.MonkeyPatch) -> None:
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
