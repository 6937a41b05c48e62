"""The demo's count of what became of what was produced."""

from __future__ import annotations

from kctl.demo.audit import audit
from kctl_agent.storage.block import Block, encode
from tests.conformance.given import chunk

PRODUCED = {("t", 0): 10}


def block(start: int, end: int) -> Block:
    return Block("t", None, 0, start, end - 1, end - start, encode(chunk(start, end).columns))


def test_what_lies_above_the_stored_offset_is_not_stored_yet_and_not_lost() -> None:
    found = audit([block(0, 4)], PRODUCED, stored_offsets={("t", 0): 4})
    assert (found.stored, found.lost, found.not_stored, found.duplicated) == (4, 0, 6, 0)


def test_what_is_missing_below_the_stored_offset_is_lost() -> None:
    found = audit([block(0, 2), block(3, 8)], PRODUCED, stored_offsets={("t", 0): 8})
    assert (found.stored, found.lost, found.not_stored) == (7, 1, 2)


def test_without_stored_offsets_all_should_be_stored_and_each_offset_once() -> None:
    found = audit([block(0, 8), block(6, 9)], PRODUCED)
    assert (found.stored, found.lost, found.not_stored, found.duplicated) == (11, 1, 0, 2)


def test_a_partition_that_was_never_read_has_lost_nothing() -> None:
    found = audit([], PRODUCED, stored_offsets={})
    assert (found.lost, found.not_stored) == (0, 10)
