"""What every `DeadLetterStore` guarantees: dead letters are found, removed and put back, and nothing else is."""

from __future__ import annotations

from typing import Generic, TypeVar

from kctl_agent.message import Message
from kctl_agent.storage.base import DeadLetterStore, OffsetStore, Selection
from kctl_agent.storage.claim import EVERYTHING
from kctl_agent.storage.limits import StorageLimits

__all__ = ["ERROR", "Dead"]

S = TypeVar("S", bound=OffsetStore)

ERROR = "ValueError: no"


class Dead(Generic[S]):
    """`kill` and `again` are how a message of a store of this kind becomes a dead letter, and where it is once it was
    put back."""

    def dead_letters(self, storage: S) -> DeadLetterStore:
        raise NotImplementedError

    def kill(self, storage: S, count: int, partition: int = 0) -> None:
        """Have `count` messages, from offset 0 in a partition that has none, be dead letters with `ERROR`."""
        raise NotImplementedError

    def again(self, storage: S) -> list[tuple[int, bytes | None]]:
        """Offset and value of each message that was put back: what is handed out once more, or has become rows."""
        raise NotImplementedError

    def offsets(self, storage: S, selection: Selection = EVERYTHING) -> list[int]:
        return [dead_letter.offset for dead_letter in self.dead_letters(storage).dead(selection)]

    def test_a_dead_letter_has_its_message_and_its_error_and_is_found_by_its_id(self, storage: S) -> None:
        self.kill(storage, 2)
        store = self.dead_letters(storage)

        first, second = store.dead()

        assert second.messages() == [Message("t", 0, 1, None, b"0001", 10, (), 1)]
        assert (second.offset, second.tries, second.error, second.is_damaged) == (1, 1, ERROR, False)
        assert [store.find_dead(each.id) for each in (first, second)] == [first, second]
        assert store.find_dead("no such") is None

    def test_where_nothing_died_there_is_none(self, storage: S) -> None:
        store = self.dead_letters(storage)

        assert list(store.dead()) == []
        assert store.find_dead("t:0:1") is None
        assert (store.count_dead(), store.requeue_dead(), store.clear("dead")) == (0, 0, 0)

    def test_dead_letters_are_found_by_topic_partition_and_offsets(self, storage: S) -> None:
        self.kill(storage, 5)
        self.kill(storage, 5, partition=1)
        store = self.dead_letters(storage)

        assert self.offsets(storage) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
        assert self.offsets(storage, Selection(partition=1, offset_from=2, offset_to=3)) == [2, 3]
        assert self.offsets(storage, Selection(topic="u")) == []
        assert self.offsets(storage, Selection(older_than_seconds=3600.0)) == []
        assert self.offsets(storage, Selection(older_than_seconds=0.0)) == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
        assert [dead_letter.offset for dead_letter in store.dead(limit=2)] == [0, 1]
        assert (store.count_dead(), store.count_dead(Selection(partition=1, offset_to=1))) == (10, 2)

    def test_clearing_removes_what_is_selected_and_leaves_the_stored_offset(self, storage: S) -> None:
        self.kill(storage, 5)
        self.kill(storage, 5, partition=1)
        store = self.dead_letters(storage)

        assert store.clear("dead", Selection(partition=0, offset_to=1)) == 2
        assert self.offsets(storage, Selection(partition=0)) == [2, 3, 4]
        assert store.clear("dead", Selection(partition=1)) == 5
        assert store.clear("dead") == 3
        assert store.clear("dead") == 0

        assert store.count_dead() == 0
        assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 5

    def test_those_that_are_older_than_they_may_be_are_removed(self, storage: S) -> None:
        self.kill(storage, 3)

        for limits, removed in (
            (StorageLimits(), 0),
            (StorageLimits(dead_seconds=3600.0), 0),
            (StorageLimits(dead_seconds=0.0), 3),
        ):
            storage.limits = limits
            assert storage.expire_dead() == removed

        assert self.offsets(storage) == []

    def test_what_was_put_back_is_no_dead_letter_any_more_and_comes_again(self, storage: S) -> None:
        self.kill(storage, 9)
        store = self.dead_letters(storage)

        assert store.requeue_dead(Selection(offset_from=2, offset_to=5)) == 4

        assert self.offsets(storage) == [0, 1, 6, 7, 8]
        assert self.again(storage) == [(offset, b"%04d" % offset) for offset in (2, 3, 4, 5)]
        assert self.offsets(storage) == [0, 1, 6, 7, 8]
        assert store.requeue_dead() == 5
        assert store.requeue_dead() == 0

    def test_what_was_put_back_is_not_removed_with_the_dead_letters(self, storage: S) -> None:
        self.kill(storage, 3)
        store = self.dead_letters(storage)
        store.requeue_dead(Selection(offset_from=1, offset_to=1))

        assert store.clear("dead") == 2

        assert self.again(storage) == [(1, b"0001")]
