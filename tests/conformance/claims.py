"""Sinkers can rely on this: an acknowledged message is removed, and a failed one is retried alone, with one more
try."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kctl_agent.message import Message
from kctl_agent.storage.base import Storage
from kctl_agent.storage.block import pack
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.claim import Settled
from tests.conformance.given import TOPIC_ID, chunk, everything, fill, offsets, put, total


class Claims:
    def test_a_claim_takes_as_many_free_blocks_as_reach_the_limit_and_at_least_one(self, storage: Storage) -> None:
        fill(storage, 9)

        assert offsets(storage.claim("a", 1, 60.0)) == [0, 1, 2]
        assert offsets(storage.claim("b", 4, 60.0)) == [3, 4, 5, 6, 7, 8]
        assert storage.claim("c", 100, 60.0) == []
        assert total(storage) == (0, 9, 0, 0)

    def test_a_claim_takes_no_block_that_would_exceed_its_bytes_and_at_least_one(self, storage: Storage) -> None:
        fill(storage, 15)
        size = storage.stats().bytes // 5

        assert offsets(storage.claim("a", 100, 60.0, limit_bytes=1)) == [0, 1, 2]
        assert offsets(storage.claim("a", 100, 60.0, limit_bytes=2 * size + 1)) == [3, 4, 5, 6, 7, 8]
        assert offsets(storage.claim("a", 1, 60.0, limit_bytes=3 * size)) == [9, 10, 11]
        assert total(storage) == (3, 12, 0, 0)

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

    def test_what_failed_comes_again_alone_with_one_more_try(self, storage: Storage) -> None:
        fill(storage, 3)
        (claim,) = storage.claim("a", 3, 60.0)

        assert storage.settle(claim, [True, False, False]) == Settled(gone=1, again=2)

        (again,) = storage.claim("b", 3, 60.0)
        assert [(m.offset, m.value, m.timestamp, m.tries) for m in again.messages] == [
            (1, b"0001", 10, 1),
            (2, b"0002", 20, 1),
        ]
        assert storage.settle(again, [False, False]) == Settled(again=2)
        assert [m.tries for m in everything(storage)] == [2, 2]

    def test_what_was_put_is_handed_out_as_it_was_and_again_after_a_failure(self, storage: Storage) -> None:
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

        storage.settle(claim, [False, True, False])

        assert everything(storage) == [replace(given[0], tries=1), replace(given[2], tries=1)]

    @pytest.mark.parametrize("has_died", [False, True])
    def test_what_an_owner_gives_back_can_be_claimed_at_once_and_counts_a_try_if_it_died(
        self, storage: Storage, has_died: bool
    ) -> None:
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
