"""Reads one page of dead letters step by step until it is full, its time is over, or there are no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from kctl_agent.storage.claim import DeadLetter, DeadLetterPage

PAGE = 1000
PAGE_BYTES = 16 << 20

STEP_SECONDS = 0.5

Progress: TypeAlias = Callable[[int], None]
"""Receives the number of dead letters processed so far; may raise to stop."""
P = TypeVar("P")
"""The position of a dead letter; its text becomes `DeadLetterPage.next`."""


def silent(_: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Step(Generic[P]):
    rows: Iterable[tuple[P, DeadLetter]]
    last: P | None


def read_page(
    read: Callable[[P | None, int], Step[P]],
    is_selected: Callable[[DeadLetter], bool],
    after: P | None,
    limit: int,
    seconds: float | None,
) -> DeadLetterPage:
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
