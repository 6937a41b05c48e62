"""A partition is delivered in offset order; with `ordered`, messages after a failed one wait."""

from __future__ import annotations

from kctl_agent.storage.base import Storage
from tests.conformance.given import chunk, everything, fill, offsets, put, settle_dead
from tests.conformance.times import PassTime


class Order:
    def test_a_partition_is_handed_out_in_offset_order(self, storage: Storage) -> None:
        fill(storage, 30)
        fill(storage, 30, partition=1)
        put(storage, chunk(30, 60), chunk(30, 60, partition=1))

        found = everything(storage)

        for partition in (0, 1):
            assert [m.offset for m in found if m.partition == partition] == list(range(60))

    def test_what_failed_or_was_given_back_comes_before_what_follows_it(self, storage: Storage) -> None:
        fill(storage, 36)
        first, *_ = storage.claim("a", 33, 60.0)
        storage.settle(first, [True, False, True])
        storage.release("a")

        assert [m.offset for m in everything(storage)] == [1, *range(3, 36)]

    def test_with_order_a_partition_has_one_block_out_at_a_time(self, storage: Storage) -> None:
        fill(storage, 6)
        fill(storage, 6, partition=1)

        claims = storage.claim("a", 100, 60.0, ordered=True)

        assert sorted((c.partition, offsets([c])) for c in claims) == [(0, [0, 1, 2]), (1, [0, 1, 2])]
        assert storage.claim("b", 100, 60.0, ordered=True) == []
        storage.settle(claims[0], [True] * 3)
        (following,) = storage.claim("b", 100, 60.0, ordered=True)
        assert (following.partition, offsets([following])) == (claims[0].partition, [3, 4, 5])

    def test_with_order_a_partition_waits_for_its_failed_message(self, storage: Storage, pass_time: PassTime) -> None:
        fill(storage, 6)
        (claim,) = storage.claim("a", 100, 600.0, ordered=True)
        storage.settle(claim, [True, True, False], retry_seconds=30.0)

        assert storage.claim("a", 100, 600.0, ordered=True) == []
        pass_time(31.0)
        (failed,) = storage.claim("a", 100, 600.0, ordered=True)
        assert offsets([failed]) == [2]
        assert storage.claim("b", 100, 600.0, ordered=True) == []
        settle_dead(storage, failed)

        assert offsets(storage.claim("a", 100, 600.0, ordered=True)) == [3, 4, 5]
