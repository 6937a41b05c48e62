"""An expired lease goes to the next owner, and a failed message waits for its next try.

`pass_time(seconds)` makes the storage's clock go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kctl_agent.storage.base import Storage
from kctl_agent.storage.claim import Settled
from kctl_agent.storage.limits import StorageLimits
from kctl_agent.storage.redis import storage as redis
from kctl_agent.storage.selection import Selection
from tests.conformance.given import everything, fill, offsets, settle_dead, total
from tests.conftest import eventually

PassTime = Callable[[float], None]


class Times:
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

    def test_a_lease_is_as_long_as_its_owner_asked_for_and_a_renewed_one_runs_from_the_renewal(
        self, storage: Storage, pass_time: PassTime
    ) -> None:
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

    def test_what_failed_waits_for_its_next_try(self, storage: Storage, pass_time: PassTime) -> None:
        fill(storage, 3)
        (claim,) = storage.claim("a", 3, 60.0)
        storage.settle(claim, [True, False, True], retry_seconds=30.0)

        assert storage.claim("a", 3, 60.0) == []
        assert total(storage) == (0, 0, 1, 0)
        pass_time(31.0)

        assert [(m.offset, m.tries) for m in everything(storage)] == [(1, 1)]

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

    def test_dead_letters_beyond_their_age_are_removed_some_at_a_time(
        self, storage: Storage, pass_time: PassTime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis, "PAGE", 2)
        fill(storage, 5)
        for claim in storage.claim("a", 1000, 60.0):
            settle_dead(storage, claim)
        storage.limits = StorageLimits(dead_seconds=0.001)
        pass_time(1.0)
        removed: list[int] = []

        def is_gone() -> bool:
            removed.append(storage.expire_dead())
            return total(storage) == (0, 0, 0, 0)

        eventually(is_gone)
        assert sum(removed) == 5
