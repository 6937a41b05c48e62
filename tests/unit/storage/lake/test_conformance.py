from __future__ import annotations

from pathlib import Path

import pytest

from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.table_conformance import OpenTable, TableDead, TableOffsets, opened


@pytest.fixture
def open_table(tmp_path: Path) -> OpenTable:
    return lambda: opened(LakeStorage(LocalFolder(tmp_path / "orders")))


class TestOffsets(TableOffsets): ...


class TestDead(TableDead): ...
