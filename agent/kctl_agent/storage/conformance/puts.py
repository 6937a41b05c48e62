"""The workers' half: puts and stored offsets."""

from __future__ import annotations

import pickle

import pytest

from kctl_agent.storage.base import (
    Advance,
    Binding,
    GapRefused,
    OtherGroup,
    Storage,
    StoredOffset,
    StoredOffsetMissing,
    StoredOffsetMoved,
)
from kctl_agent.storage.conformance.given import chunk, next_offset, put, stored

__all__ = ["Puts"]


class Puts:
    def test_a_put_stores_the_messages_and_moves_the_stored_offset_together(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])

        (done,) = put(storage, chunk(0, 10))

        assert (done.stored, done.skipped) == (10, 0)
        assert stored(storage) == list(range(10))
        assert storage.stored_offsets([("t", 0)])[("t", 0)] == StoredOffset("t", 0, "A", 10, 1)
        assert [record.value for block in storage.blocks() for record in block.messages()][3] == b"0003"

    def test_what_lies_below_the_stored_offset_is_skipped(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])
        put(storage, chunk(0, 10))

        again, partly = put(storage, chunk(0, 10), chunk(5, 12))

        assert (again.stored, again.skipped) == (0, 10)
        assert (partly.stored, partly.skipped) == (2, 5)
        assert stored(storage) == list(range(12))

    def test_a_range_that_begins_above_the_stored_offset_is_refused_and_nothing_is_written(
        self, storage: Storage
    ) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 4)])

        with pytest.raises(GapRefused, match="begins at 7, above the stored offset 4: offsets 4 to 6 would be lost"):
            put(storage, chunk(7, 9))

        assert stored(storage) == []
        assert next_offset(storage) == 4

    def test_holes_inside_a_range_are_no_gap(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 4)])

        put(storage, chunk(4, 20, [9, 11, 12, 19]))

        assert stored(storage) == [9, 11, 12, 19]
        assert next_offset(storage) == 20

    def test_a_partition_without_a_stored_offset_is_refused(self, storage: Storage) -> None:
        with pytest.raises(StoredOffsetMissing):
            put(storage, chunk(0, 3))
        with pytest.raises(StoredOffsetMissing):
            storage.advance_offsets([Advance("t", 0, 1, 0, 3)])

        assert stored(storage) == []

    def test_what_was_planned_on_an_earlier_placement_is_refused(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])
        put(storage, chunk(0, 10))
        seen = storage.stored_offsets([("t", 0)])
        storage.init_offsets([StoredOffset("t", 0, "B", 4)], seen)  # a reset, or a topic that was recreated

        with pytest.raises(StoredOffsetMoved, match="set anew since this batch was planned"):
            put(storage, chunk(4, 6))
        with pytest.raises(StoredOffsetMoved):
            storage.advance_offsets([Advance("t", 0, 1, 4, 9)])

        assert stored(storage) == list(range(10))
        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, "B", 4, 2)}

    def test_a_topic_without_an_id_is_one_incarnation(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, None, 0)])

        put(storage, chunk(0, 3, topic_id=None))

        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, None, 3, 1)}
        assert [block.topic_id for block in storage.blocks()] == [None]

    def test_an_advance_never_goes_back_and_never_jumps(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 10), StoredOffset("t", 1, "A", 10)])

        storage.advance_offsets([Advance("t", 0, 1, 5, 7)])
        assert next_offset(storage) == 10
        storage.advance_offsets([Advance("t", 0, 1, 9, 12)])
        assert next_offset(storage) == 12
        with pytest.raises(GapRefused, match="begins at 13, above the stored offset 12"):
            storage.advance_offsets([Advance("t", 1, 1, 10, 11), Advance("t", 0, 1, 13, 20)])

        stored_offsets = storage.stored_offsets([("t", 0), ("t", 1), ("t", 2)])
        assert stored_offsets == {
            ("t", 0): StoredOffset("t", 0, "A", 12, 1),
            ("t", 1): StoredOffset("t", 1, "A", 10, 1),
        }

    def test_a_stored_offset_is_placed_only_where_it_still_is_as_it_was_seen(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0), StoredOffset("t", 1, "A", 0)])
        seen = storage.stored_offsets([("t", 0), ("t", 1)])
        put(storage, chunk(0, 10))

        with pytest.raises(
            StoredOffsetMoved, match=r"t-0 has moved from offset 0 \(version 1\) to offset 10 \(version 1\)"
        ):
            storage.init_offsets([StoredOffset("t", 1, "A", 5), StoredOffset("t", 0, "A", 5)], seen)
        with pytest.raises(StoredOffsetMoved, match="from none to offset 10"):
            storage.init_offsets([StoredOffset("t", 0, "A", 5)])

        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, "A", 10, 1)}
        assert storage.stored_offsets([("t", 1)]) == {("t", 1): StoredOffset("t", 1, "A", 0, 1)}

    def test_a_stored_offset_that_went_back_and_came_forward_again_is_not_the_one_that_was_seen(
        self, storage: Storage
    ) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])
        put(storage, chunk(0, 10))
        seen = storage.stored_offsets([("t", 0)])
        storage.init_offsets([StoredOffset("t", 0, "A", 5)], seen)
        put(storage, chunk(5, 10, version=2))

        with pytest.raises(StoredOffsetMoved):
            storage.init_offsets([StoredOffset("t", 0, "A", 5)], seen)

        assert next_offset(storage) == 10

    def test_a_storage_belongs_to_one_group_of_one_cluster(self, storage: Storage) -> None:
        first = storage.bind(Binding("orders", None))
        assert storage.bind(Binding("orders", "K1")) == storage.bind(Binding("orders", None)) == first

        for other in (Binding("invoices", "K1"), Binding("orders", "K2")):
            with pytest.raises(OtherGroup, match=r"belongs to group orders of cluster K1, and this is group"):
                storage.bind(other)

        assert storage.bind(Binding("orders", "K1")) == first

    def test_a_storage_can_be_taken_over(self, storage: Storage) -> None:
        first = storage.bind(Binding("orders", "K1"))

        assert storage.bind(Binding("invoices", "K2"), take_over=True) == first

        with pytest.raises(OtherGroup, match="belongs to group invoices of cluster K2"):
            storage.bind(Binding("orders", "K1"))

    def test_offsets_are_exact_up_to_two_to_the_53rd(self, storage: Storage) -> None:
        far = 2**53 - 10
        storage.init_offsets([StoredOffset("t", 0, "A", far)])

        put(storage, chunk(far, far + 3))

        assert stored(storage) == [far, far + 1, far + 2]
        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, "A", far + 3, 1)}

    def test_stats_count_messages_and_bytes(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])
        put(storage, chunk(0, 10))

        stats = storage.stats()

        assert (stats.pending, stats.processing, stats.dead, stats.limit) == (10, 0, 0, None)
        assert stats.bytes == sum(len(block.body) for block in storage.blocks())

    def test_blocks_hold_at_most_the_configured_number_of_messages(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])
        put(storage, chunk(0, 10))

        assert [block.count for block in storage.blocks()] == [3, 3, 3, 1]

    def test_a_storage_travels_to_an_executor(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])

        there: Storage = pickle.loads(pickle.dumps(storage))  # noqa: S301 - our own bytes
        put(there, chunk(0, 2))
        there.close()

        assert there.identity == storage.identity
        assert stored(storage) == [0, 1]

    def test_preparing_again_keeps_everything(self, storage: Storage) -> None:
        storage.init_offsets([StoredOffset("t", 0, "A", 0)])
        put(storage, chunk(0, 2))

        storage.prepare()

        assert stored(storage) == [0, 1]
