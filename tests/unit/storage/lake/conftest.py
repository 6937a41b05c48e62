from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from kctl_agent.storage.lake.folder import local
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.object_store import ObjectStore
from kctl_agent.storage.sync import sync_file
from tests.lake_tables import begun, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture
def folder() -> S3Folder:
    store: Any = MemoryStore()
    return S3Folder(ObjectStore("lake", "http://127.0.0.1:1", "us-east-1"), "orders", store)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    found: list[Path] = []

    def noted(file: Path) -> None:
        sync_file(file)
        found.append(file)

    monkeypatch.setattr(local, "sync_file", noted)
    return found


@pytest.fixture
def storage(path: Path) -> LakeStorage:
    return opened(path, start=100)


@pytest.fixture
def filled(path: Path) -> LakeStorage:
    made = opened(path, start=0)
    begun(made, 0, 10).commit()
    return made
