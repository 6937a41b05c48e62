from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a table that is not there yet."""
    return tmp_path / "orders"
