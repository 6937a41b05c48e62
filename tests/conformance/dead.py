"""Every `DeadLetterStore` finds, deletes and requeues the selected dead letters, and no others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

import pytest

from kctl_agent.errors import BadParams
from kctl_agent.message import Message
from kctl_agent.storage.base import DeadLetterStore, OffsetStore
from kctl_agent.storage.claim import CountChanged, DeadLetter
from kctl_agent.storage.limits import StorageLimits
from kctl_agent.storage.selection import EVERYTHING, Selection
from tests.conftest import raising

S = TypeVar("S", bound=OffsetStore)

ERROR = "ValueError: no"
TRACE = """the handler shop:handle raised KeyError: 'id' on t-1 offsets 0..4 (5 messages)
Traceback (most recent call last):
  File "/srv/app/shop.py", line 7, in handle
    orders[order["id"]] = order
  File "/usr/lib/python3/site-packages/orders.py", line 3, in __setitem__
    raise KeyError(key)
KeyError: 'id'"""


class Dead(Generic[S]):
    def dead_letters(self, storage: S) -> DeadLetterStore:
        raise NotImplementedError

    def kill(self, storage: S, count: int, partition: int = 0, error: str = ERROR) -> None:
        """Turns `count` messages, from offset 0 of an empty partition, into dead letters with this error."""
        raise NotImplementedError

    def again(self, storage: S) -> list[tuple[int, bytes | None]]:
        """Offset and value of each requeued message, delivered again or stored as a row."""
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
        assert (store.count_dead(), store.requeue_dead(), store.remove_dead()) == (0, 0, 0)

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

    def kill_two_kinds(self, storage: S) -> DeadLetterStore:
        """Offsets 0 to 2 of partition 0 died of `ERROR`, offsets 0 to 4 of partition 1 of `TRACE`."""
        self.kill(storage, 3)
        self.kill(storage, 5, partition=1, error=TRACE)
        return self.dead_letters(storage)

    def test_dead_letters_are_found_by_what_they_died_of(self, storage: S) -> None:
        self.kill_two_kinds(storage)

        assert self.offsets(storage, Selection(error_class="ValueError")) == [0, 1, 2]
        assert self.offsets(storage, Selection(error_class="KeyError", offset_from=3)) == [3, 4]
        assert self.offsets(storage, Selection(line="shop.py:7", topic="t")) == [0, 1, 2, 3, 4]
        assert self.offsets(storage, Selection(line="shop.py:7", partition=0)) == []
        assert self.offsets(storage, Selection(line="", error_class="KeyError")) == []
        assert self.offsets(storage, Selection(traceback="in handle")) == [0, 1, 2, 3, 4]
        assert self.offsets(storage, Selection(traceback="in_handle")) == []

    def test_dead_letters_are_found_by_text_key_tries_time_and_id(self, storage: S) -> None:
        store = self.kill_two_kinds(storage)
        died = [each.at for each in store.dead()]

        assert self.offsets(storage, Selection(text="03")) == [3]
        assert self.offsets(storage, Selection(text="000", partition=0, offset_from=1)) == [1, 2]
        assert self.offsets(storage, Selection(key="")) == [], "null is not an empty key"
        assert len(self.offsets(storage, Selection(tries_from=1, tries_to=1))) == 8
        assert self.offsets(storage, Selection(tries_from=2)) == self.offsets(storage, Selection(tries_to=0)) == []
        assert len(self.offsets(storage, Selection(died_from=died[0], died_to=died[-1]))) == 8
        assert self.offsets(storage, Selection(died_from=died[-1] + 1)) == []
        assert self.offsets(storage, Selection(died_to=died[0] - 1)) == []
        first, *_, last = store.dead()
        assert self.offsets(storage, Selection(ids=(last.id, "no such", first.id))) == [0, 4]

    def pages(self, store: DeadLetterStore, selection: Selection, **limits: Any) -> Iterator[Sequence[DeadLetter]]:
        after = None
        while True:
            page = store.dead_page(selection, after, **limits)
            yield page.rows
            if (after := page.next) is None:
                return

    @pytest.mark.parametrize(
        "selection",
        [EVERYTHING, Selection(topic="t"), Selection(traceback="o"), Selection(line="shop.py:7"), Selection(text="0")],
    )
    def test_a_page_goes_on_where_the_former_ended(self, storage: S, selection: Selection) -> None:
        store = self.kill_two_kinds(storage)
        whole = [(each.id, each.error) for each in store.dead(selection)]

        pages = list(self.pages(store, selection, limit=2))

        assert max(map(len, pages)) <= 2
        assert [(each.id, each.error) for page in pages for each in page] == whole
        assert len(whole) >= 5
        assert sum(map(len, self.pages(store, selection, seconds=0.0))) == len(whole), "each may not read for long"
        with pytest.raises(BadParams, match="after"):
            store.dead_page(selection, "no page")

    def test_dead_letters_are_counted_by_error_class_and_line_of_the_handler(self, storage: S) -> None:
        store = self.kill_two_kinds(storage)
        dead_letters = list(store.dead())

        groups = store.dead_groups(hours=2)

        assert [(group.cause, group.count, group.hours) for group in groups] == [
            (("KeyError", "shop.py:7"), 5, (0, 5)),
            (("ValueError", ""), 3, (0, 3)),
        ]
        times = [each.at for each in dead_letters if each.block.partition == 1]
        assert (groups[0].first_died, groups[0].last_died) == (min(times), max(times))
        (early,) = store.dead_groups(Selection(partition=1, died_to=times[1]), hours=1)
        assert early.hours == (early.count,)
        newest = store.find_dead(groups[0].newest)
        assert newest is not None
        assert (newest.block.partition, newest.at) == (1, max(times))
        chosen = Selection(partition=1, line="shop.py:7"), Selection(died_from=times[0] + 1), Selection(text="04")
        assert [store.count_dead(each) for each in chosen] == [5, 0, 1]
        assert [group.count for group in store.dead_groups(Selection(traceback="KeyError"))] == [5]
        two = Selection(traceback="r", offset_from=1, offset_to=2, tries_from=1, tries_to=1)
        assert [group.count for group in store.dead_groups(two)] == [2, 2]
        assert [group.count for group in store.dead_groups(replace(two, partition=1, line="shop.py:7"))] == [2]
        assert store.dead_groups(replace(two, tries_from=2, tries_to=None)) == []

    def test_those_of_the_last_minutes_are_counted_with_the_class_of_most(self, storage: S) -> None:
        assert self.dead_letters(storage).recent_dead() is None
        store = self.kill_two_kinds(storage)

        recent = store.recent_dead()

        assert recent is not None
        assert (recent.count, recent.error_class) == (8, "KeyError")
        assert recent.first_seconds is not None
        assert recent.last_seconds is not None
        assert 0.0 <= recent.last_seconds <= recent.first_seconds < 60.0
        store.remove_dead(Selection(error_class="KeyError"))
        left = store.recent_dead()
        assert left is not None
        assert (left.count, left.error_class) == (3, "ValueError")

    def test_another_count_than_was_seen_is_rejected_and_nothing_changes(self, storage: S) -> None:
        store = self.kill_two_kinds(storage)

        for change in (store.requeue_dead, store.remove_dead):
            with pytest.raises(CountChanged, match="5 dead letters match, but 4 were expected") as refused:
                change(Selection(error_class="KeyError"), expect=4)
            assert (refused.value.expected, refused.value.found) == (4, 5)
            with pytest.raises(CountChanged):
                change(Selection(topic="u"), expect=1)
            assert store.count_dead() == 8

        one = next(iter(store.dead(Selection(text="03", partition=1)))).id
        assert store.count_dead(Selection(ids=(one, one))) == 1
        done: list[int] = []
        assert store.remove_dead(Selection(ids=(one, one)), 1, done.append) == 1
        assert store.requeue_dead(Selection(error_class="KeyError"), 4, done.append) == 4
        assert sorted({*done} - {0}) == [1, 4]
        assert self.offsets(storage) == [0, 1, 2]
        assert store.remove_dead(Selection(topic="u"), expect=0) == 0

    def test_what_is_sent_somewhere_else_is_gone_once_it_is_there_and_the_rest_stays(self, storage: S) -> None:
        store = self.kill_two_kinds(storage)
        sent: list[tuple[int, bytes | None]] = []

        def send(dead_letters: list[DeadLetter]) -> list[DeadLetter]:
            there = [each for each in dead_letters if each.offset != 2]
            sent.extend((each.offset, message.value) for each in there for message in each.messages())
            return there

        with pytest.raises(KeyError):
            store.move_dead(raising(KeyError()), Selection(partition=1))
        with pytest.raises(CountChanged):
            store.move_dead(send, Selection(partition=1), expect=4)
        assert (sent, store.count_dead()) == ([], 8)

        assert store.move_dead(send, Selection(partition=1, offset_from=1), expect=4) == 3

        assert sorted(sent) == [(offset, b"%04d" % offset) for offset in (1, 3, 4)]
        assert self.offsets(storage) == [0, 1, 2, 0, 2]

    def expired(self, storage: S) -> int:
        return storage.expire_dead()

    @pytest.mark.shows("dead letters stay forever unless an age is set; their removal is an event")
    def test_those_that_are_older_than_they_may_be_are_removed(self, storage: S) -> None:
        self.kill(storage, 3)

        for limits, removed in (
            (StorageLimits(), 0),
            (StorageLimits(dead_seconds=3600.0), 0),
            (StorageLimits(dead_seconds=0.0), 3),
        ):
            storage.limits = limits
            assert self.expired(storage) == removed

        assert self.offsets(storage) == []

    def test_a_requeued_message_is_no_longer_a_dead_letter_and_is_claimed_again(self, storage: S) -> None:
        self.kill(storage, 9)
        store = self.dead_letters(storage)

        assert store.requeue_dead(Selection(offset_from=2, offset_to=5)) == 4

        assert self.offsets(storage) == [0, 1, 6, 7, 8]
        assert store.remove_dead(Selection(offset_to=6)) == 3, "those that are requeued are not removed"
        assert self.again(storage) == [(offset, b"%04d" % offset) for offset in (2, 3, 4, 5)]
        assert self.offsets(storage) == [7, 8]
        assert store.requeue_dead() == 2
        assert store.requeue_dead() == store.remove_dead() == store.count_dead() == 0
        assert storage.stored_offsets([("t", 0)])[("t", 0)].next == 9
