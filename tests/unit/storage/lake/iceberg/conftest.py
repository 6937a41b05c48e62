from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.storage.lake.iceberg.tables import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A folder for a table, and a catalog in a SQLite file; what is opened in it is closed at the end."""
    made = Lake(tmp_path)
    yield made
    made.close()
