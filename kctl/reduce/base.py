"""What a reducer is given and returns. Reducing is pure: no clock, no I/O, and neither order nor repetition matters."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from kctl_agent.wire import JsonObject

__all__ = [
    "Answer",
    "ClusterFigures",
    "ClusterPartition",
    "Freshness",
    "GroupFigures",
    "Reducer",
    "per_sender",
    "youngest_rows",
]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one agent said: its result object, and how old the snapshot was that it answered from."""

    sender: str
    result: JsonObject
    age_seconds: float


@dataclass(frozen=True, slots=True)
class ClusterPartition:
    """A partition as the brokers see it: log start, the group's committed offset, end; None where it is not known."""

    topic: str
    partition: int
    start: int | None
    committed: int | None
    end: int | None
    age_seconds: float


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """The consumer group as its coordinator sees it, members of other clients included."""

    state: str
    """`stable`, `preparing_rebalance`, `completing_rebalance`, `empty`, `dead`, ...: Kafka's words."""
    members: int


@dataclass(frozen=True, slots=True)
class ClusterFigures:
    """The brokers' own view: every partition of the configured topics, whether a worker answers for it or not."""

    partitions: tuple[ClusterPartition, ...]
    group: GroupFigures | None = None
    """None when the coordinator could not tell in the last look: old news of members would be no news."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long ago the brokers answered the master, and from what age on their figures are stale."""

    age_seconds: float | None
    """Since at least one broker answered; None: never."""
    complete_age_seconds: float | None
    """Since everything that was asked was answered; None: never."""
    stale_after_seconds: float
    """Two collect intervals; of the interval that is kept to, where collections take longer than the configured one."""
    error: str | None
    """Why the last poll failed, in whole or in part."""

    def to_json(self) -> JsonObject:
        return {
            "age_seconds": self.complete_age_seconds,
            "stale_after_seconds": self.stale_after_seconds,
            "error": self.error,
        }


Reducer: TypeAlias = Callable[[Sequence[Answer], ClusterFigures | None], JsonObject]
"""Agents' answers and the brokers' figures (None when they were never reached) to the result of a command."""

K = TypeVar("K", bound=Hashable)


def per_sender(answers: Iterable[Answer]) -> list[Answer]:
    """The youngest answer of each sender, sorted by sender."""
    return [answer for _, answer in sorted(_youngest((answer.sender, answer) for answer in answers).items())]


def youngest_rows(answers: Iterable[Answer], field: str, key: Callable[[JsonObject], K]) -> dict[K, JsonObject]:
    """The rows that the answers hold under `field`, by `key`; of rows with one key, the youngest answer's."""
    rows = (
        (key(row), Answer(answer.sender, row, answer.age_seconds))
        for answer in answers
        for row in answer.result.get(field) or ()
    )
    return {name: answer.result for name, answer in _youngest(rows).items()}


def _youngest(keyed: Iterable[tuple[K, Answer]]) -> dict[K, Answer]:
    found: dict[K, Answer] = {}
    for key, answer in keyed:
        known = found.get(key)
        if known is None or _comes_before(answer, known):
            found[key] = answer
    return found


def _comes_before(answer: Answer, other: Answer) -> bool:
    """The younger; of equal age any may win, but always the same one, in whatever order they came."""
    if answer.age_seconds != other.age_seconds:
        return answer.age_seconds < other.age_seconds
    if answer.sender != other.sender:
        return answer.sender < other.sender
    first, second = (json.dumps(each.result, sort_keys=True) for each in (answer, other))
    return first < second
