from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.checkpoints.entries import BadEntry, initial, is_commit, merged, planned, query_id, starting_offsets

ENTRY = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795707263135,"conf":{"a":"b"}}\n{"orders":{"0":18,"1":17}}'
OFFSETS = {("orders", 0): 18, ("orders", 1): 17}


def test_an_entry_has_the_next_offset_of_each_partition_and_of_two_sources_the_lower() -> None:
    found = planned(ENTRY)

    assert found.sources == (OFFSETS,)
    assert found.planned_at == 1795707263.135
    assert found.conf == {"a": "b"}
    assert merged([OFFSETS, None, {("orders", 0): 5, ("payments", 0): 1}]) == OFFSETS | {
        ("orders", 0): 5,
        ("payments", 0): 1,
    }
    assert initial('\0v1\n{"orders":{"0":18,"1":17}}') == OFFSETS
    assert starting_offsets(OFFSETS) == '{"orders":{"0":18,"1":17}}'


@given(st.integers(0, len(ENTRY) - 1))
def test_an_entry_that_is_cut_anywhere_is_never_taken_for_a_whole_one(at: int) -> None:
    with pytest.raises(BadEntry):
        planned(ENTRY[:at])


@pytest.mark.parametrize("version", ["v0", "v3", "v10", "V1", "1", "v", "v1 v1"])
def test_an_entry_of_an_unknown_version_is_not_read(version: str) -> None:
    for read, entry in ((planned, ENTRY.removeprefix("v1")), (is_commit, '\n{"nextBatchWatermarkMs":0}')):
        with pytest.raises(BadEntry, match="which kctl does not know"):
            read(version + entry)


def test_metadata_without_a_query_id_is_not_read() -> None:
    for text in ("", "{", '{"id":5}', "[]", '{"id":"orders"}'):
        with pytest.raises(BadEntry):
            query_id(text)


@pytest.mark.parametrize(
    "source", ["-", "5", '{"logOffset":3}', '{"sourceVersion":1,"reservoirId":"a"}', "{}", '{"orders":{"0":"a"}}']
)
def test_a_source_that_is_not_kafka_has_no_offsets(source: str) -> None:
    assert planned(f"v1\n{{}}\n{source}").sources == (None,)
