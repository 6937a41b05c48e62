"""An exception in an executor's Python reaches the driver through Spark and Py4J with its cause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.lone_spark import found_by

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(180)]


def test_a_storage_that_cannot_be_used_is_known_by_its_type_and_nothing_else_passes_for_it(short_dir: Path) -> None:
    found = found_by("failing_tasks.py", short_dir)

    is_storage, text = found["unusable"]
    assert is_storage
    assert text.startswith("StorageUnusable: ")
    assert "No such file or directory" in text
    is_storage, text = found["gap"]
    assert not is_storage
    assert text.startswith("GapRefused: a range of t-0 starts at 7, above the stored offset 5")
    assert [found["quoted"][0]] == [False]
