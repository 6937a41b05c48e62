from __future__ import annotations

import threading
from typing import Any

import pytest
from obstore.store import MemoryStore

from kctl_agent.storage.lake.delta.table import LakeTable
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.object_store import ObjectStore


@pytest.fixture
def folder() -> S3Folder:
    store: Any = MemoryStore()
    return S3Folder(ObjectStore("lake", "http://127.0.0.1:1", "us-east-1"), "orders", store)


def test_a_table_is_there_once_its_log_has_a_version(folder: S3Folder) -> None:
    """Even if delta-rs cannot open it, because the store belongs to another client."""
    table = LakeTable(folder)
    folder.write("_delta_log/_last_checkpoint", b"{}")
    assert not table.exists()

    folder.write("_delta_log/00000000000000000007.checkpoint.0000000001.0000000002.parquet", b"1")
    assert not table.exists(), "a half of one"
    folder.write("_delta_log/00000000000000000000.json", b"{}")

    assert table.exists()


def answers(monkeypatch: pytest.MonkeyPatch, *given: bool) -> None:
    """The store rejects one creation per answer; `True` if it has the object anyway."""
    created, left, one = S3Folder._created, list(given), threading.Lock()

    def faulty(folder: S3Folder, key: str, content: bytes) -> bool:
        with one:
            if not left:
                return created(folder, key, content)
            if left.pop(0):
                created(folder, key, content)
            return False

    monkeypatch.setattr(S3Folder, "_created", faulty)


def test_a_lost_reply_does_not_reject_a_store(folder: S3Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object exists when the request is repeated, so the store rejects the repetition, like all other requests."""
    answers(monkeypatch, True)

    folder.check()

    assert list(folder.files()) == []


def test_an_object_is_created_though_the_store_rejected_it(folder: S3Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a conflict (409) of two requests, both rejected."""
    answers(monkeypatch, False, False)
    assert folder.create("a.json", b"ours")
    answers(monkeypatch, False, True)
    assert folder.create("b.json", b"ours")
    assert not folder.create("b.json", b"theirs")

    answers(monkeypatch, *[False] * 100)
    with pytest.raises(OSError, match=r"refuses 5 times to make c\.json, which is not there"):
        folder.create("c.json", b"ours")
