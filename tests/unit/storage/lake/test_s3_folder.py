"""A prefix of a bucket, on a store in memory."""

from __future__ import annotations

from typing import Any

import pytest
from obstore.store import MemoryStore

from kctl_agent.object_store import ObjectStore
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.lake.table import LakeTable


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
