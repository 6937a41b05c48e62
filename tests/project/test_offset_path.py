"""How far a committed offset has to go to `/metrics`, of a fleet and of every other group alike."""

from __future__ import annotations

import pytest

from tests.offset_path import walked


@pytest.mark.shows("a committed offset passes at most 21 files and 9 value types to `/metrics`, status rules included")
def test_a_committed_offset_passes_at_most_21_files_and_9_value_types_on_its_way_to_metrics() -> None:
    walk = walked()

    assert len(walk.files) <= 21, sorted(walk.files)
    assert len(walk.types) <= 9, sorted(walk.types)
