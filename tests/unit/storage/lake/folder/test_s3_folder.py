"""A prefix of a bucket, on a store in memory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from obstore.store import MemoryStore

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.object_store import ObjectStore
from tests.unit.storage.lake.test_storage import FIELDS, schema


@pytest.fixture
def folder() -> S3Folder:
    store: Any = MemoryStore()
    return S3Folder(ObjectStore("lake", "http://127.0.0.1:1", "us-east-1"), "orders", store)


def test_a_table_is_there_once_its_log_has_a_version(folder: S3Folder) -> None:
    """Also where delta-rs could not open it: the store is another client's."""
    table = LakeTable(folder)
    folder.write("_delta_log/_last_checkpoint", b"{}")
    assert not table.exists()

    folder.write("_delta_log/00000000000000000007.checkpoint.0000000001.0000000002.parquet", b"1")
    assert not table.exists(), "a half of one"
    folder.write("_delta_log/00000000000000000000.json", b"{}")

    assert table.exists()


def answers(monkeypatch: pytest.MonkeyPatch, *given: bool) -> None:
    """What the store answers to one request after the other that is to create an object, whatever it does: it refuses
    one and has the object (True), or has not (False)."""
    created, left, one = S3Folder._created, list(given), threading.Lock()

    def faulty(folder: S3Folder, key: str, content: bytes) -> bool:
        with one:
            if not left:
                return created(folder, key, content)
            if left.pop(0):
                created(folder, key, content)
            return False

    monkeypatch.setattr(S3Folder, "_created", faulty)


@pytest.mark.shows("a store whose replies are lost, or that refuses (409) what it does not have, is used")
def test_a_store_whose_reply_was_lost_at_the_start_is_not_taken_for_one_that_heeds_no_condition(
    folder: S3Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own object is there when the request is repeated: that one, and all others, are refused."""
    answers(monkeypatch, True)

    folder.check()

    assert list(folder.files()) == []


def test_an_object_that_a_store_refuses_without_having_it_is_created_all_the_same(
    folder: S3Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a conflict (409) of two requests that both are refused."""
    answers(monkeypatch, False, False)
    assert folder.create("a.json", b"ours")
    answers(monkeypatch, False, True)
    assert folder.create("b.json", b"ours")
    assert not folder.create("b.json", b"theirs")

    answers(monkeypatch, *[False] * 100)
    with pytest.raises(OSError, match=r"refuses 5 times to make c\.json, which is not there"):
        folder.create("c.json", b"ours")


def test_a_table_is_made_though_the_store_has_refused_the_first_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a conflict (409) that nobody has won, of which delta-rs makes an error."""
    create, refused = DeltaTable.create, 0

    def refusing(*args: Any, **options: Any) -> DeltaTable:
        nonlocal refused
        if refused < 1:
            refused += 1
            raise DeltaError("Invalid table version: 0")
        return create(*args, **options)

    monkeypatch.setattr(DeltaTable, "create", refusing)
    table = LakeTable(LocalFolder(tmp_path / "orders"))
    table.fit(schema(*FIELDS), [])

    assert table.exists()
    refused = -1
    with pytest.raises(StorageUnusable, match=r"orders2 cannot be made: Invalid table version: 0"):
        LakeTable(LocalFolder(tmp_path / "orders2")).fit(schema(*FIELDS), [])
