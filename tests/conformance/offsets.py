"""Every `OffsetStore` stores messages and stored offset in one transaction, each message once, and sets an offset only
if it has not changed since it was read."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

import pytest

from kctl_agent.storage.base import OffsetStore
from kctl_agent.storage.chunk import (
    Advance,
    Binding,
    Chunk,
    GapRefused,
    Put,
    StoredOffset,
    StoredOffsetMissing,
    StoredOffsetMoved,
)
from tests.conformance.given import OTHER_TOPIC_ID, TOPIC_ID, chunk, next_offset

S = TypeVar("S", bound=OffsetStore)
FAR = 2**53 - 10


class StoredOffsets(Generic[S]):
    def plan(self, storage: S, chunk: Chunk) -> Callable[[], Put]:
        """Prepares this chunk's commit; the result commits it. Both raise as `Writer.put`."""
        raise NotImplementedError

    def stored(self, storage: S) -> list[int]:
        """Offsets of stored messages in order, with repetitions."""
        raise NotImplementedError

    def reopened(self, storage: S) -> S:
        there: S = pickle.loads(pickle.dumps(storage))
        return there

    def put(self, storage: S, *chunks: Chunk) -> list[Put]:
        return [self.plan(storage, one)() for one in chunks]

    def test_messages_are_stored_with_their_offset_and_those_below_it_are_skipped(self, storage: S) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0)])

        first, again, partly = self.put(storage, chunk(0, 10), chunk(0, 10), chunk(5, 12))

        assert [(each.stored, each.skipped) for each in (first, again, partly)] == [(10, 0), (0, 10), (2, 5)]
        assert self.stored(storage) == list(range(12))
        assert storage.stored_offsets([("t", 0)])[("t", 0)] == StoredOffset("t", 0, TOPIC_ID, 12, 1)

    def test_a_range_above_the_stored_offset_or_without_one_is_rejected_and_not_written(self, storage: S) -> None:
        with pytest.raises(StoredOffsetMissing):
            self.put(storage, chunk(0, 3))
        with pytest.raises(StoredOffsetMissing):
            storage.advance_offsets([Advance("t", 0, 1, 0, 3)])
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 4)])

        with pytest.raises(GapRefused, match="starts at 7, above the stored offset 4: offsets 4 to 6 would be lost"):
            self.put(storage, chunk(7, 9))

        assert self.stored(storage) == []
        assert next_offset(storage) == 4

    def test_a_plan_for_an_earlier_placement_is_rejected(self, storage: S) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0)])
        self.put(storage, chunk(0, 10))
        seen = storage.stored_offsets([("t", 0)])
        storage.init_offsets([StoredOffset("t", 0, OTHER_TOPIC_ID, 4)], seen)  # a reset, or a topic that was recreated

        with pytest.raises(StoredOffsetMoved, match="set again since this batch was planned"):
            self.put(storage, chunk(4, 6))
        with pytest.raises(StoredOffsetMoved):
            storage.advance_offsets([Advance("t", 0, 1, 4, 9)])

        assert self.stored(storage) == list(range(10))
        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, OTHER_TOPIC_ID, 4, 2)}

    def test_a_writer_frozen_before_its_commit_stores_nothing_after_offsets_were_set_again(self, storage: S) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0)])
        self.put(storage, chunk(0, 10))
        commit = self.plan(storage, chunk(10, 20))
        seen = storage.stored_offsets([("t", 0)])
        self.reopened(storage).init_offsets([StoredOffset("t", 0, TOPIC_ID, 10)], seen)

        with pytest.raises(StoredOffsetMoved):
            commit()

        assert self.stored(storage) == list(range(10))
        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, TOPIC_ID, 10, 2)}

    def test_who_was_frozen_before_its_commit_stores_nothing_that_the_next_owner_has_stored(self, storage: S) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0)])
        commit = self.plan(storage, chunk(0, 20))
        self.put(self.reopened(storage), chunk(0, 10))

        with suppress(StoredOffsetMoved):  # the store rejects all of it, or skips only stored messages
            commit()

        assert self.stored(storage) == list(range(next_offset(storage)))
        assert next_offset(storage) in (10, 20)

    def test_of_owners_that_store_the_same_ranges_at_once_each_message_is_stored_once(self, storage: S) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0)])
        owners = [storage, self.reopened(storage)]

        def work(mine: S) -> None:
            while (start := next_offset(mine)) < 60:
                with suppress(StoredOffsetMoved):
                    self.put(mine, chunk(start, start + 10))

        with ThreadPoolExecutor(len(owners)) as threads:
            list(threads.map(work, owners))

        end = next_offset(storage)
        assert end >= 60
        assert self.stored(storage) == list(range(end))

    def test_another_process_and_another_start_find_what_was_stored(self, storage: S) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0), StoredOffset("t", 1, None, 7)])
        there = self.reopened(storage)

        self.put(there, chunk(0, 2))
        there.close()
        storage.prepare()

        assert there.identity == storage.identity
        assert self.stored(storage) == [0, 1]
        both = [("t", 0), ("t", 1)]
        assert storage.stored_offsets(both) == self.reopened(storage).stored_offsets(both)

    def test_the_id_of_a_topic_may_become_another_or_unknown(self, storage: S) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 9)])

        for version, topic_id in enumerate((OTHER_TOPIC_ID, None, TOPIC_ID), 2):
            storage.init_offsets([StoredOffset("t", 0, topic_id, 7)], storage.stored_offsets([("t", 0)]))
            assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, topic_id, 7, version)}

    def test_an_advance_never_goes_back_and_never_jumps(self, storage: S) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 10), StoredOffset("t", 1, TOPIC_ID, 10)])

        storage.advance_offsets([Advance("t", 0, 1, 5, 7)])
        assert next_offset(storage) == 10
        storage.advance_offsets([Advance("t", 0, 1, 9, 12)])
        assert next_offset(storage) == 12
        with pytest.raises(GapRefused, match="starts at 13, above the stored offset 12"):
            storage.advance_offsets([Advance("t", 1, 1, 10, 11), Advance("t", 0, 1, 13, 20)])

        stored_offsets = storage.stored_offsets([("t", 0), ("t", 1), ("t", 2)])
        assert stored_offsets == {
            ("t", 0): StoredOffset("t", 0, TOPIC_ID, 12, 1),
            ("t", 1): StoredOffset("t", 1, TOPIC_ID, 10, 1),
        }

    def test_a_stored_offset_is_placed_only_where_it_still_is_as_it_was_seen(self, storage: S) -> None:
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0), StoredOffset("t", 1, TOPIC_ID, 0)])
        seen = storage.stored_offsets([("t", 0), ("t", 1)])
        self.put(storage, chunk(0, 10))

        with pytest.raises(StoredOffsetMoved, match=r"t-0 has moved from offset 0 \(version 1\) to offset 10 \("):
            storage.init_offsets([StoredOffset("t", 1, TOPIC_ID, 5), StoredOffset("t", 0, TOPIC_ID, 5)], seen)
        with pytest.raises(StoredOffsetMoved, match="from none to offset 10"):
            storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 5)])

        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, TOPIC_ID, 10, 1)}
        assert storage.stored_offsets([("t", 1)]) == {("t", 1): StoredOffset("t", 1, TOPIC_ID, 0, 1)}

        seen = storage.stored_offsets([("t", 0)])
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 5)], seen)
        self.put(storage, chunk(5, 10, version=2))
        with pytest.raises(StoredOffsetMoved):  # it went back and came forward again
            storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 5)], seen)
        assert next_offset(storage) == 10

    @pytest.mark.parametrize(
        ("start", "end", "at", "topic_id"),
        [
            (4, 20, [9, 11, 12, 19], TOPIC_ID),
            (4, 9, [], TOPIC_ID),
            (0, 3, [0, 1, 2], None),
            (FAR, FAR + 3, [FAR, FAR + 1, FAR + 2], TOPIC_ID),
        ],
        ids=["with holes", "without messages", "of a topic without an id", "near two to the 53rd"],
    )
    def test_ranges_are_stored(self, storage: S, start: int, end: int, at: list[int], topic_id: str | None) -> None:
        storage.init_offsets([StoredOffset("t", 0, topic_id, start)])

        self.put(storage, chunk(start, end, at, topic_id))

        assert self.stored(storage) == at
        assert storage.stored_offsets([("t", 0)]) == {("t", 0): StoredOffset("t", 0, topic_id, end, 1)}

    def test_its_id_stays_the_same_for_every_owner(self, storage: S) -> None:
        first = storage.bind(Binding("orders", None))

        assert storage.bind(Binding("orders", "K1")) == storage.bind(Binding("orders", None)) == first
        assert self.reopened(storage).bind(Binding("orders", "K1")) == first
        assert storage.bind(Binding("invoices", "K2"), take_over=True) == first
