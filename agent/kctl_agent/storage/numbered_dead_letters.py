"""Dead letters, numbered as they are stored. A requeue, move or removal ignores dead letters that were stored after it
began. Otherwise, a requeue would never end if each requeued message immediately became a dead letter again."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kctl_agent.errors import BadParams
from kctl_agent.replies.block_size import RECENT_DEAD_COUNTED, RECENT_DEAD_SECONDS, RecentDeadLetters
from kctl_agent.storage.base import PAGE, STEP_SECONDS, DeadLetterStore, Progress, Step, read_page, silent
from kctl_agent.storage.block import BLOCK_BYTES
from kctl_agent.storage.causes import public_class
from kctl_agent.storage.claim import DeadLetter, DeadLetterGroup, DeadLetterPage, check_count, grouped
from kctl_agent.storage.limits import StorageLimits
from kctl_agent.storage.selection import EVERYTHING, INDEXED, Selection, is_id_number

LATEST = 1e12
NEWEST = 20
SCANNED = 1000


class Place(NamedTuple):
    at: float
    number: int

    @classmethod
    def of(cls, dead_letter: DeadLetter) -> Place:
        return cls(dead_letter.at, int(dead_letter.id))

    @classmethod
    def parsed(cls, text: str) -> Place:
        at, _, number = text.partition("/")
        with suppress(ValueError):
            place = cls(float(at), int(number))
            if 0 <= place.at < LATEST and 0 <= place.number < 2**63:
                return place
        raise BadParams("after: not the `next` of an earlier page")

    def __str__(self) -> str:
        return f"{self.at!r}/{self.number}"


@dataclass(eq=False, repr=False, kw_only=True)
class NumberedDeadLetters(DeadLetterStore):
    block_messages: int = 500
    block_bytes: int = BLOCK_BYTES
    codec: str = "none"
    limits: StorageLimits = StorageLimits()  # noqa: RUF009 - it is frozen
    counted = INDEXED

    @abstractmethod
    def _dead_now(self) -> float: ...  # Unix seconds of the clock that dates dead letters

    @abstractmethod
    def _last_dead(self) -> int: ...

    @abstractmethod
    def _dead_places(self, selection: Selection, after: Place | None, limit: int) -> list[Place]: ...

    @abstractmethod
    def _sift_dead(self, selection: Selection, numbers: list[int]) -> list[int]: ...

    @abstractmethod
    def _read_dead(self, numbers: Sequence[int]) -> Iterable[DeadLetter]: ...

    @abstractmethod
    def _indexed_groups(self, selection: Selection, hours: int, now: float) -> list[DeadLetterGroup]:
        """Counts dead letters by cause. `selection` has only criteria in `self.counted`."""

    @abstractmethod
    def _put_back_dead(self, dead_letters: list[DeadLetter]) -> int: ...

    @abstractmethod
    def _remove_dead(self, dead_letters: list[DeadLetter]) -> int: ...

    def find_dead(self, id: str) -> DeadLetter | None:  # noqa: A002
        return next(iter(self._read_dead(_numbers([id]))), None)

    def dead_page(
        self,
        selection: Selection = EVERYTHING,
        after: str | None = None,
        limit: int = PAGE,
        seconds: float | None = None,
    ) -> DeadLetterPage:
        selection = selection.dated(self._dead_now())
        place = None if after is None else Place.parsed(after)
        return read_page(partial(self._step, selection), selection.takes_dead_letter, place, limit, seconds)

    def _step(self, selection: Selection, after: Place | None, limit: int) -> Step[Place]:
        wanted = limit if selection.is_indexed else SCANNED
        places = self._places(selection, after, wanted)
        numbers = [each.number for each in places]
        likely = numbers if selection.is_indexed else self._sift_dead(selection, numbers)
        rows = ((Place.of(each), each) for each in self._read_dead(likely))
        return rows, places[-1] if len(places) == wanted else None

    def _places(self, selection: Selection, after: Place | None, limit: int) -> list[Place]:
        if selection.ids is None:
            return self._dead_places(selection, after, limit)
        places = sorted(map(Place.of, self._read_dead(_numbers(selection.ids))))
        return [place for place in places if after is None or place > after][:limit]

    def dead_groups(
        self, selection: Selection = EVERYTHING, hours: int = 0, progress: Progress = silent
    ) -> list[DeadLetterGroup]:
        now = self._dead_now()
        selection = selection.dated(now)
        if self.counted.issuperset(selection.named):
            found = self._indexed_groups(selection, hours, now)
            return sorted(found, key=lambda group: (-group.count, group.cause))
        return grouped(self.dead(selection, None, progress), hours, now)

    def recent_dead(self) -> RecentDeadLetters | None:
        """Counts up to `RECENT_DEAD_COUNTED` dead letters, oldest first. `error_class` is from the last `NEWEST`."""
        now = self._dead_now()
        recent = Selection(died_from=now - RECENT_DEAD_SECONDS, died_to=now)  # the clock may have been set back
        if not (places := self._dead_places(recent, None, RECENT_DEAD_COUNTED)):
            return None
        newest = self._read_dead([place.number for place in places[-NEWEST:]])
        classes = Counter(public_class(each.cause.error_class) for each in newest)
        most = max(classes, key=lambda each: (classes[each], each), default=None)
        last = places[-1].at if len(places) < RECENT_DEAD_COUNTED else now
        return RecentDeadLetters(len(places), most, now - places[0].at, now - last)

    def requeue_dead(
        self, selection: Selection = EVERYTHING, expect: int | None = None, progress: Progress = silent
    ) -> int:
        return self._each_page(selection, expect, progress, self._put_back_dead)

    def remove_dead(
        self, selection: Selection = EVERYTHING, expect: int | None = None, progress: Progress = silent
    ) -> int:
        return self._each_page(selection, expect, progress, self._remove_dead)

    def move_dead(
        self,
        send: Callable[[list[DeadLetter]], list[DeadLetter]],
        selection: Selection = EVERYTHING,
        expect: int | None = None,
        progress: Progress = silent,
    ) -> int:
        def move(dead_letters: list[DeadLetter]) -> int:
            return self._remove_dead(send([each for each in dead_letters if not each.is_damaged]))

        return self._each_page(selection, expect, progress, move)

    def _each_page(
        self, selection: Selection, expect: int | None, progress: Progress, change: Callable[[list[DeadLetter]], int]
    ) -> int:
        last = self._last_dead()
        selection = selection.dated(self._dead_now())
        if expect is not None:
            check_count(self.count_dead(selection, progress), expect)
        done, after = 0, None
        while True:
            page = self.dead_page(selection, after, PAGE, STEP_SECONDS)
            progress(done)  # before the change: a stop while waiting or counting must change nothing
            if rows := [each for each in page.rows if int(each.id) <= last]:
                done += change(rows)
            progress(done)
            if page.next is None:
                return done
            after = page.next


def _numbers(ids: Iterable[str]) -> list[int]:
    return sorted({int(id_) for id_ in ids if is_id_number(id_)})
