"""One page of dead letters, read step by step until it is full, its time is over, or no more are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from kctl_agent.storage.claim import DeadLetter, DeadLetterPage

PAGE = 1000
PAGE_BYTES = 16 << 20
"""Of bodies: a page that holds as many ends there."""

STEP_SECONDS = 0.5
"""After so long somebody who reads all is asked whether to go on."""

Progress: TypeAlias = Callable[[int], None]
"""Called with how many dead letters something was done to so far; may raise to stop it there."""
P = TypeVar("P")
"""Where a dead letter is among the others; its text goes into `DeadLetterPage.next`."""


def silent(_: int) -> None:
    """A `Progress` of nobody who listens."""


@dataclass(frozen=True, slots=True)
class Step(Generic[P]):
    """What a storage reads at a time."""

    rows: Iterable[tuple[P, DeadLetter]]
    """In order, selected or not; read as they are iterated."""
    last: P | None
    """The place behind which the next step goes on; None: there are no more."""


def read_page(
    read: Callable[[P | None, int], Step[P]],
    is_selected: Callable[[DeadLetter], bool],
    after: P | None,
    limit: int,
    seconds: float | None,
) -> DeadLetterPage:
    """The next dead letters behind a place, `limit` of them at the most. `read` is called with a place and how many are
    still missing; once it has taken so many seconds in all, the page is what was found."""
    until = None if seconds is None else time.monotonic() + seconds
    found: list[DeadLetter] = []
    size, place = 0, after
    while len(found) < limit and size < PAGE_BYTES:
        step = read(place, limit - len(found))
        for place, dead_letter in step.rows:
            size += len(dead_letter.block.body)
            if is_selected(dead_letter):
                found.append(dead_letter)
            if len(found) == limit or size >= PAGE_BYTES:
                return DeadLetterPage(found, str(place))
        if step.last is None:
            return DeadLetterPage(found, None)
        place = step.last
        if until is not None and time.monotonic() >= until:
            break
    return DeadLetterPage(found, str(place))
