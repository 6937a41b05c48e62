from __future__ import annotations

from pathlib import Path

import pytest

from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import begun, opened


@pytest.fixture
def storage(path: Path) -> LakeStorage:
    made = opened(path, start=0)
    begun(made, 0, 10).commit()
    return made
