"""What the driver makes of an exception in an executor's Python, through Spark's and Py4J's own exceptions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]


def test_a_storage_that_cannot_be_used_is_known_by_its_type_and_nothing_else_passes_for_it(short_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("failing_tasks.py"), short_dir],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)

    is_storage, text = found["unusable"]
    assert is_storage
    assert text.startswith("StorageUnusable: ")
    assert "No such file or directory" in text
    is_storage, text = found["gap"]
    assert not is_storage
    assert text.startswith("GapRefused: a range of t-0 begins at 7, above the stored offset 5")
    assert [found["quoted"][0]] == [False]
