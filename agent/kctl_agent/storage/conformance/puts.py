"""The workers' half: puts and marks."""

from __future__ import annotations

import pickle

import pytest

from kctl_agent.storage.base import GapRefused, Mark, MarkMissing, Storage, TopicRecreated
from kctl_agent.storage.conformance.given import chunk, next_offset, put, stored

__all__ = ["Puts"]


class Puts:
    def test_a_put_stores_the_messages_and_moves_the_mark_together(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, "A", 0, None)])

        (done,) = put(storage, chunk(0, 10))

        assert (done.stored, done.skipped) == (10, 0)
        assert stored(storage) == list(range(10))
        assert storage.marks([("t", 0)])[("t", 0)] == Mark("t", 0, "A", 10, 0)
        assert [record.value for block in storage.blocks() for record in block.records()][3] == b"0003"

    def test_what_lies_below_the_mark_is_skipped(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, "A", 0, None)])
        put(storage, chunk(0, 10))

        again, partly = put(storage, chunk(0, 10), chunk(5, 12))

        assert (again.stored, again.skipped) == (0, 10)
        assert (partly.stored, partly.skipped) == (2, 5)
        assert stored(storage) == list(range(12))

    def test_a_range_that_begins_above_the_mark_is_refused_and_nothing_is_written(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, "A", 4, None)])

        with pytest.raises(GapRefused, match="begins at 7, above the mark 4: offsets 4 to 6 would be lost"):
            put(storage, chunk(7, 9))

        assert stored(storage) == []
        assert next_offset(storage) == 4

    def test_holes_inside_a_range_are_no_gap(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, "A", 4, None)])

        put(storage, chunk(4, 20, [9, 11, 12, 19]))

        assert stored(storage) == [9, 11, 12, 19]
        assert next_offset(storage) == 20

    def test_a_partition_without_a_mark_and_another_incarnation_of_a_topic_are_refused(self, storage: Storage) -> None:
        with pytest.raises(MarkMissing):
            put(storage, chunk(0, 3))
        storage.place_marks([Mark("t", 0, "A", 0, None)])
        with pytest.raises(TopicRecreated):
            put(storage, chunk(0, 3, topic_id="B"))
        with pytest.raises(TopicRecreated):
            put(storage, chunk(0, 3, topic_id=None))

        assert stored(storage) == []

    def test_a_topic_without_an_id_is_one_incarnation(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, None, 0, None)])

        put(storage, chunk(0, 3, topic_id=None))

        assert storage.marks([("t", 0)]) == {("t", 0): Mark("t", 0, None, 3, 0)}
        assert [block.topic_id for block in storage.blocks()] == [None]

    def test_marks_move_back_only_by_placing_them(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, "A", 10, 5)])

        storage.advance_marks({("t", 0): 7})
        assert next_offset(storage) == 10
        storage.advance_marks({("t", 0): 12, ("t", 98): 3})
        assert next_offset(storage) == 12
        storage.record_committed({("t", 0): 12, ("t", 99): 5})
        assert storage.marks([("t", 0), ("t", 98), ("t", 99)]) == {("t", 0): Mark("t", 0, "A", 12, 12)}
        storage.record_committed({("t", 0): 11})
        assert storage.marks([("t", 0)]) == {("t", 0): Mark("t", 0, "A", 12, 12)}
        storage.place_marks([Mark("t", 0, "B", 3, 3)])
        assert storage.marks([("t", 0)]) == {("t", 0): Mark("t", 0, "B", 3, 3)}

    def test_offsets_are_told_exactly_up_to_two_to_the_53rd(self, storage: Storage) -> None:
        far = 2**53 - 10
        storage.place_marks([Mark("t", 0, "A", far, None)])

        put(storage, chunk(far, far + 3))

        assert stored(storage) == [far, far + 1, far + 2]
        assert storage.marks([("t", 0)]) == {("t", 0): Mark("t", 0, "A", far + 3, far)}

    def test_stats_count_messages_and_bytes(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, "A", 0, None)])
        put(storage, chunk(0, 10))

        stats = storage.stats()

        assert (stats.pending, stats.processing, stats.dead, stats.limit) == (10, 0, 0, None)
        assert stats.bytes == sum(len(block.body) for block in storage.blocks())

    def test_blocks_hold_at_most_the_configured_number_of_messages(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, "A", 0, None)])
        put(storage, chunk(0, 10))

        assert [block.count for block in storage.blocks()] == [3, 3, 3, 1]

    def test_a_storage_travels_to_an_executor(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, "A", 0, None)])

        there: Storage = pickle.loads(pickle.dumps(storage))  # noqa: S301 - our own bytes
        put(there, chunk(0, 2))
        there.close()

        assert there.identity == storage.identity
        assert stored(storage) == [0, 1]

    def test_preparing_again_keeps_everything(self, storage: Storage) -> None:
        storage.place_marks([Mark("t", 0, "A", 0, None)])
        put(storage, chunk(0, 2))

        storage.prepare()

        assert stored(storage) == [0, 1]
