"""Tables keep what the contract promises of every `OffsetStore` and `DeadLetterStore`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl_agent.storage.lake import LakeStorage, TableStorage
from kctl_agent.storage.lake.folder import LocalFolder
from tests.table_conformance import OpenTable, TableDead, TableOffsets, opened
from tests.unit.storage.lake.iceberg.tables import Lake


@pytest.fixture(params=["delta", "iceberg"])
def open_table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenTable]:
    lake = Lake(tmp_path)

    def another() -> TableStorage:
        return opened(lake.storage() if request.param == "iceberg" else LakeStorage(LocalFolder(lake.path)))

    yield another
    lake.close()


class TestOffsets(TableOffsets): ...


class TestDead(TableDead): ...
