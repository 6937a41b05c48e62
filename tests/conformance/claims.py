"""Sinkers can rely on this: an acknowledged message is removed, and a failed one is retried alone, with one more try.
An expired lease goes to the next owner. A partition is delivered in offset order; with `ordered`, messages after a
failed one wait."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kctl_agent.message import Message
from kctl_agent.storage.base import Storage
from kctl_agent.storage.block import pack
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.claim import Settled
from kctl_agent.storage.limits import StorageLimits
from kctl_agent.storage.redis import storage as redis
from kctl_agent.storage.selection import Selection
from tests.conformance.given import TOPIC_ID, chunk, everything, fill, offsets, put, settle_dead, total

PassTime = Callable[[float], None]  # makes the storage's clock go on by so many seconds


class Claims:
    def test_a_claim_takes_free_blocks_up_to_its_messages_and_bytes_and_at_least_one(self, storage: Storage) -> None:
        fill(storage, 21)
        size = storage.stats().bytes // 7

        assert offsets(storage.claim("a", 1, 60.0, limit_bytes=3 * size)) == [0, 1, 2]
        assert offsets(storage.claim("b", 4, 60.0)) == [3, 4, 5, 6, 7, 8]
        assert offsets(storage.claim("a", 100, 60.0, limit_bytes=1)) == [9, 10, 11]
        assert offsets(storage.claim("a", 100, 60.0, limit_bytes=2 * size + 1)) == [12, 13, 14, 15, 16, 17]
        assert total(storage) == (3, 18, 0, 0)
        assert offsets(storage.claim("b", 100, 60.0)) == [18, 19, 20]
        assert storage.claim("c", 100, 60.0) == []

    def test_what_is_acknowledged_is_gone_and_a_second_settle_is_lost(self, storage: Storage) -> None:
        fill(storage, 3)
        (claim,) = storage.claim("a", 3, 60.0)

        with pytest.raises(ValueError, match="2 acks for 3 messages"):
            storage.settle(claim, [True, True])
        assert storage.settle(claim, [True, True, True]) == Settled(gone=3)
        assert storage.settle(claim, [False] * 3) == Settled(is_lost=True)

        assert total(storage) == (0, 0, 0, 0)
        assert storage.stats().bytes == 0
        assert list(storage.blocks()) == []

    def test_what_was_put_comes_as_it_was_and_again_if_it_fails(self, storage: Storage, pass_time: PassTime) -> None:
        given = [
            Message("t", 0, 0, b"k", None, 7, (("h", b"\xff"), ("null", None))),
            Message("t", 0, 1, None, b"", 8),
            Message("t", 0, 2, b"", b"\x00v", 9, (("ä", b""),)),
        ]
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 0)])
        put(storage, replace(chunk(0, 3), columns=pack(given)))
        (claim,) = storage.claim("a", 3, 60.0)
        assert (claim.topic, claim.partition, claim.owner, claim.tries) == ("t", 0, "a", 0)
        assert claim.messages == given

        assert storage.settle(claim, [False, True, False], retry_seconds=30.0) == Settled(gone=1, again=2)

        assert storage.claim("b", 3, 60.0) == []
        assert total(storage) == (0, 0, 2, 0)
        pass_time(31.0)
        (again,) = storage.claim("b", 3, 60.0)
        assert again.messages == [replace(given[0], tries=1), replace(given[2], tries=1)]
        assert storage.settle(again, [False, False]) == Settled(again=2)
        assert everything(storage) == [replace(given[0], tries=2), replace(given[2], tries=2)]

    @pytest.mark.parametrize("has_died", [False, True])
    def test_what_an_owner_gives_back_is_free_and_counts_a_try_if_dead(self, storage: Storage, has_died: bool) -> None:
        fill(storage, 6)
        (old,) = storage.claim("a", 3, 60.0)
        (other,) = storage.claim("b", 3, 60.0)

        assert storage.release("a", count_try=has_died) == 3
        assert storage.release("a") == 0
        assert storage.settle(old, [True] * 3) == Settled(is_lost=True)
        assert storage.renew(old, 60.0) is False
        assert total(storage) == (3, 3, 0, 0)

        (new,) = storage.claim("a", 3, 60.0)
        assert (offsets([new]), new.tries) == ([0, 1, 2], int(has_died))
        assert storage.settle(old, [True] * 3).is_lost, "the same owner has another lease"
        assert storage.settle(new, [True] * 3) == storage.settle(other, [True] * 3) == Settled(gone=3)

    def test_stats_distinguish_partitions(self, storage: Storage) -> None:
        fill(storage, 4)
        fill(storage, 5, partition=1)
        fill(storage, 2, topic="u")
        storage.claim("a", 3, 60.0)

        found = {(p.topic, p.partition): (p.pending, p.processing) for p in storage.stats().partitions}

        assert found == {("t", 0): (1, 3), ("t", 1): (5, 0), ("u", 0): (2, 0)}
        assert sum(p.bytes for p in storage.stats().partitions) == storage.stats().bytes

    def test_a_partition_is_handed_out_in_order_even_what_failed_or_was_given_back(self, storage: Storage) -> None:
        for partition in (0, 1):
            fill(storage, 30, partition)
        put(storage, chunk(30, 60), chunk(30, 60, partition=1))
        first, *_ = storage.claim("a", 33, 60.0)
        storage.settle(first, [True, False, True])
        storage.release("a")

        found = everything(storage)

        assert [m.offset for m in found if m.partition == 0] == [1, *range(3, 60)]
        assert [m.offset for m in found if m.partition == 1] == list(range(60))

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

    def test_an_expired_lease_gives_the_block_on_and_counts_a_try(self, storage: Storage, pass_time: PassTime) -> None:
        fill(storage, 3)
        (late,) = storage.claim("a", 3, 60.0)

        pass_time(59.0)
        assert storage.claim("b", 3, 60.0) == []
        pass_time(2.0)
        (claim,) = storage.claim("b", 3, 60.0)

        assert (offsets([claim]), claim.tries) == ([0, 1, 2], 1)
        assert storage.settle(late, [True] * 3) == Settled(is_lost=True)
        assert storage.renew(late, 60.0) is False
        assert total(storage) == (0, 3, 0, 0)
        pass_time(100.0)
        assert storage.settle(claim, [True] * 3) == Settled(gone=3), "an expired lease is good until another takes it"

    def test_a_lease_runs_as_long_as_asked_from_its_last_renewal(self, storage: Storage, pass_time: PassTime) -> None:
        fill(storage, 6)
        (claim,) = storage.claim("a", 3, 60.0)
        storage.claim("b", 3, 10.0)

        pass_time(50.0)
        assert storage.renew(claim, 60.0) is True
        assert offsets(storage.claim("c", 100, 600.0)) == [3, 4, 5]
        pass_time(50.0)
        assert storage.claim("c", 3, 60.0) == []
        pass_time(11.0)
        assert offsets(storage.claim("c", 3, 60.0)) == [0, 1, 2]

    def test_the_oldest_message_that_is_not_dead_has_its_age(self, storage: Storage, pass_time: PassTime) -> None:
        assert storage.stats().oldest_seconds is None
        fill(storage, 3)
        pass_time(100.0)
        fill(storage, 3, partition=1)

        stats = storage.stats()

        assert stats.oldest_seconds == pytest.approx(100, abs=30)
        assert [p.oldest_seconds for p in stats.partitions] == [pytest.approx(100, abs=30), pytest.approx(0, abs=30)]

    def test_expired_leases_and_delays_are_requeued_on_request(self, storage: Storage, pass_time: PassTime) -> None:
        fill(storage, 9)
        (delayed,) = storage.claim("a", 3, 1000.0)
        storage.settle(delayed, [False] * 3, retry_seconds=500.0)
        storage.claim("gone", 3, 10.0)
        pass_time(11.0)
        storage.renew(storage.claim("alive", 3, 1000.0)[0], 1000.0)

        # the claim has put the lost lease back: "alive" has it
        assert storage.requeue_stuck() == 3
        assert total(storage) == (6, 3, 0, 0)
        assert storage.requeue_stuck() == 0

    def test_an_old_lease_is_taken_away_when_its_age_is_named(self, storage: Storage, pass_time: PassTime) -> None:
        fill(storage, 3)
        (claim,) = storage.claim("a", 3, 1000.0)
        pass_time(100.0)

        assert storage.requeue_stuck(Selection(older_than_seconds=200.0)) == 0
        assert storage.requeue_stuck(Selection(older_than_seconds=90.0, partition=1)) == 0
        assert storage.requeue_stuck(Selection(older_than_seconds=90.0)) == 3

        assert storage.settle(claim, [True] * 3).is_lost
        assert total(storage) == (3, 0, 0, 0)

    def test_what_was_put_before_the_clock_was_set_back_is_cleared(self, storage: Storage, pass_time: PassTime) -> None:
        fill(storage, 3)
        pass_time(-3600.0)

        assert (storage.stats().oldest_seconds or 0.0) >= 0.0
        assert storage.clear(Selection(older_than_seconds=0.0)) == 0
        assert storage.clear() == 3

    def test_old_dead_letters_are_removed_by_pages(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(redis, "PAGE", 2)
        fill(storage, 5)
        for claim in storage.claim("a", 1000, 60.0):
            settle_dead(storage, claim)
        storage.limits = StorageLimits(dead_seconds=0.0)

        assert sum(iter(storage.expire_dead, 0)) == 5
        assert total(storage) == (0, 0, 0, 0)
