"""In a storage with pending messages, a message has one dead letter with its last error; a damaged block is set aside
with its bytes, and the others continue. Pending messages are removed on request."""

from collections.abc import Callable
from functools import partial

import pytest

from kctl_agent.errors import StorageError
from kctl_agent.message import Message
from kctl_agent.storage import numbered_dead_letters
from kctl_agent.storage.base import DeadLetterStore, Storage
from kctl_agent.storage.chunk import Advance, GapRefused, StoredOffset, StoredOffsetMissing, StoredOffsetMoved
from kctl_agent.storage.claim import Settled
from kctl_agent.storage.selection import Selection
from tests.conformance.dead import ERROR, Dead
from tests.conformance.given import (
    OTHER_TOPIC_ID,
    TOPIC_ID,
    chunk,
    everything,
    fill,
    next_offset,
    offsets,
    put,
    settle_dead,
    total,
)

Damage = Callable[[int], bytes]  # overwrites the block with this first offset, and returns the bytes


class DeadLetters(Dead[Storage]):
    def dead_letters(self, storage: Storage) -> DeadLetterStore:
        return storage

    def kill(self, storage: Storage, count: int, partition: int = 0, error: str = ERROR) -> None:
        fill(storage, count, partition)
        for claim in storage.claim("a", 10_000, 60.0):
            settle_dead(storage, claim, error)

    def again(self, storage: Storage) -> list[tuple[int, bytes | None]]:
        return [(message.offset, message.value) for message in everything(storage)]

    @pytest.mark.shows("a message is never both pending and a dead letter, even if its sinker is killed")
    def test_dead_letters_and_messages_that_come_again_are_settled_in_one_step(self, storage: Storage) -> None:
        fill(storage, 3)
        (claim,) = storage.claim("a", 3, 60.0)
        dead = {0: "no amount", 2: "no date"}

        assert storage.settle(claim, [False, False, True], dead=dead) == Settled(again=1, dead=2)

        assert [(each.offset, each.tries, each.error) for each in storage.dead()] == [(0, 1, dead[0]), (2, 1, dead[2])]
        assert total(storage) == (0, 0, 1, 2)
        assert storage.settle(claim, [True, True, False], dead=dead).is_lost, "a claim that was lost makes none"
        assert total(storage) == (0, 0, 1, 2)
        (again,) = storage.claim("a", 3, 60.0)
        assert storage.settle(again, [False], dead={0: "KeyError: 'id'"}) == Settled(dead=1)
        *_, last = there = list(storage.dead())
        assert (last.error, last.is_damaged) == ("KeyError: 'id'", False)
        assert last.messages() == [Message("t", 0, 1, None, b"0001", 10, (), 2)]
        assert storage.stats().bytes == sum(len(each.block.body) for each in there)
        storage.remove_dead()
        assert (total(storage), storage.stats().bytes) == ((0, 0, 0, 0), 0)

    def test_compressed_messages_are_found_by_content(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        for codec in ("none", "zstd"):
            monkeypatch.setattr(storage, "codec", codec)
            values = [b"a needle in" + b" hay" * 99, *[b"hay"] * 4]
            messages = [Message("t", 0, n, b"key%d" % n, value, 10, (), n) for n, value in enumerate(values)]
            storage.dead_letter(messages, ERROR)

            assert self.offsets(storage, Selection(text="needle in hay")) == [0]
            assert self.offsets(storage, Selection(key="key0", tries_from=0, offset_to=0, traceback="Error")) == [0]
            assert self.offsets(storage, Selection(key="key")) == self.offsets(storage, Selection(text="hey")) == []
            assert self.offsets(storage, Selection(tries_from=1, tries_to=3)) == [1, 2, 3]

    def test_an_unreadable_message_is_dead_as_the_stored_offset_moves_over_it(self, storage: Storage) -> None:
        fill(storage, 3)
        messages = [Message("t", 0, offset, b"k", b"bad", 2**60, (("h", None),)) for offset in (3, 5)]

        storage.dead_letter(messages, ERROR, TOPIC_ID, Advance("t", 0, 1, 3, 6))
        assert ([each.offset for each in storage.dead()], next_offset(storage)) == ([3, 5], 6)
        assert [each.messages() for each in storage.dead()] == [[each] for each in messages]

        for late in (Advance("t", 0, 1, 3, 6), Advance("t", 0, 1, 7, 8), Advance("t", 0, 2, 6, 7)):
            with pytest.raises((StoredOffsetMoved, GapRefused)):
                storage.dead_letter([Message("t", 0, 6, None, b"good", 0)], ERROR, TOPIC_ID, late)
        with pytest.raises(StoredOffsetMissing):
            storage.dead_letter([Message("t", 1, 6, None, b"good", 0)], ERROR, TOPIC_ID, Advance("t", 1, 1, 6, 7))
        assert ([each.offset for each in storage.dead()], next_offset(storage)) == ([3, 5], 6)

    def test_what_dies_once_more_takes_the_place_of_its_dead_letter(self, storage: Storage) -> None:
        self.kill(storage, 3)
        before = storage.stored_offsets([("t", 0)])
        storage.init_offsets([StoredOffset("t", 0, TOPIC_ID, 1)], before)  # a seek back
        put(storage, chunk(1, 3, version=2))
        (claim,) = storage.claim("a", 3, 60.0)

        storage.settle(claim, [False, True], dead={0: "KeyError: 'id'"})
        for error in ("the first", "the last"):
            storage.dead_letter([Message("t", 0, 2, None, b"0002", 20, (), 4)], error, TOPIC_ID)
        storage.dead_letter([Message("t", 0, 2, None, b"0002", 20)], "a recreated topic's", OTHER_TOPIC_ID)

        assert [(x.offset, x.tries, x.error) for x in storage.dead()] == [
            (0, 1, ERROR),
            (1, 1, "KeyError: 'id'"),
            (2, 4, "the last"),
            (2, 0, "a recreated topic's"),
        ]
        assert total(storage) == (0, 0, 0, 4)
        assert storage.stats().bytes == sum(len(dead_letter.block.body) for dead_letter in storage.dead())
        assert storage.requeue_dead() == 4
        assert sorted((each.offset, each.tries) for each in everything(storage)) == [(0, 0), (1, 0), (2, 0), (2, 0)]

    def test_what_dies_during_a_requeue_waits_longer(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(numbered_dead_letters, "PAGE", 2)
        self.kill(storage, 5)

        def handle_and_fail(_: int) -> None:
            for claim in storage.claim("a", 100, 60.0):
                settle_dead(storage, claim, "again")

        assert storage.requeue_dead(progress=handle_and_fail) == 5

        assert [(each.offset, each.error) for each in storage.dead()] == [(offset, "again") for offset in range(5)]

    def test_a_requeue_that_stops_did_whole_pages(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(numbered_dead_letters, "PAGE", 2)
        self.kill(storage, 5)

        def stop(done: int, after: int = 1) -> None:
            if done >= after:
                raise KeyboardInterrupt

        for change in (storage.requeue_dead, storage.remove_dead):
            with pytest.raises(KeyboardInterrupt):
                change(Selection(topic="t"), progress=partial(stop, after=0))
            assert total(storage) == (0, 0, 0, 5), "it was stopped before it began"
        for change, left in ((storage.requeue_dead, (2, 0, 0, 3)), (storage.remove_dead, (2, 0, 0, 1))):
            with pytest.raises(KeyboardInterrupt):
                change(Selection(topic="t"), progress=stop)
            assert total(storage) == left

    def test_messages_that_die_together_of_several_causes_are_counted_apart(self, storage: Storage) -> None:
        for _ in range(2):
            messages = [Message("t", 0, n, None, None, 0) for n in range(6)]
            storage.dead_letter(messages, [f"Error{n % 3}: no" for n in range(6)])

            assert [(group.cause, group.count) for group in storage.dead_groups()] == [
                ((f"Error{n}", ""), 2) for n in range(3)
            ]
            assert self.offsets(storage, Selection(error_class="Error1")) == [1, 4]
            storage.remove_dead()

    def test_what_waits_is_not_chosen_by_what_only_dead_letters_have(self, storage: Storage) -> None:
        fill(storage, 3)

        for change in (storage.clear, storage.requeue_stuck):
            with pytest.raises(StorageError, match="pending messages cannot be selected by text, tries_from"):
                change(Selection(text="x", tries_from=1))

        assert total(storage) == (3, 0, 0, 0)

    def test_clearing_what_waits_spares_what_is_leased(self, storage: Storage) -> None:
        fill(storage, 9)
        fill(storage, 3, partition=1)
        (delayed,) = storage.claim("a", 3, 60.0)
        storage.settle(delayed, [False] * 3, retry_seconds=100.0)
        (leased,) = storage.claim("a", 3, 60.0)

        assert storage.clear(Selection(older_than_seconds=3600.0)) == 0
        assert storage.clear(Selection(partition=0)) == 6

        assert total(storage) == (3, 3, 0, 0)
        assert storage.settle(leased, [True] * 3) == Settled(gone=3)

    def test_an_error_keeps_its_traceback_letters_that_no_encoding_has_and_8_kib(self, storage: Storage) -> None:
        traceback = 'Traceback (most recent call last):\n  File "h.py", line 1, in handle\nValueError: käse\n'
        errors = f"the handler failed\n{traceback}", "no file \udcff.txt", "x" * 1_000_000
        fill(storage, 3)
        (claim,) = storage.claim("a", 3, 60.0)

        storage.settle(claim, [False] * 3, dead=dict(enumerate(errors)))

        whole, escaped, cut = (dead_letter.error for dead_letter in storage.dead())
        assert (whole, escaped) == (errors[0], "no file \\udcff.txt")
        assert 6000 < len(cut) <= 8192

    def test_an_unreadable_block_is_set_aside_and_the_rest_goes_on(self, storage: Storage, damage: Damage) -> None:
        fill(storage, 9)
        broken = damage(3)

        assert offsets(storage.claim("a", 3, 60.0)) == [0, 1, 2]
        assert offsets(storage.claim("a", 3, 60.0)) == [6, 7, 8], "a claim of a damaged block goes on to the next"
        storage.release("a")
        assert [m.offset for m in everything(storage)] == [0, 1, 2, 6, 7, 8]

        (dead_letter,) = storage.dead()
        assert dead_letter.is_damaged
        assert "damaged" in dead_letter.error or "not a block" in dead_letter.error
        block = dead_letter.block
        assert (block.body, block.first, block.last, block.count) == (broken, 3, 5, 3)
        assert total(storage) == (0, 0, 0, 3)
        assert storage.requeue_dead() == 0
        assert list(storage.blocks()) == []
        assert storage.remove_dead() == 1
