"""How far a committed offset has to go to `/metrics`, of a fleet and of every other group alike."""

from __future__ import annotations

import pytest

from tests.offset_path import walked


@pytest.mark.shows("a committed offset passes at most 20 files and 8 value types to `/metrics`, status rules included")
def test_a_committed_offset_passes_at_most_20_files_and_8_value_types_on_its_way_to_metrics() -> None:
    walk = walked()

    assert len(walk.files) <= 20, sorted(walk.files)
    assert len(walk.types) <= 8, sorted(walk.types)
