"""The advice on the number of workers and sinkers of a fleet or a group."""

from __future__ import annotations

from enum import StrEnum
from operator import attrgetter

from msgspec import Struct


class Answer(StrEnum):
    """The kind of advice."""

    KEEP = "keep"
    WORKERS = "workers"
    SINKERS = "sinkers"
    HOT = "hot"
    """A partition needs more than a worker can do; more workers would not help."""
    HANDLER = "handler"
    """The handler is the limit; more processes would not help."""
    STORAGE = "storage"
    """The storage, or the host, is the limit; more processes would not help."""
    UNKNOWN = "unknown"


class HotPartition(Struct, frozen=True):
    topic: str
    partition: int
    workers: float
    """How many workers its messages would need."""


class Outcome(Struct, frozen=True):
    """Whether an advised change had the expected effect."""

    number: int
    """Counts the outcomes since the start."""
    text: str
    is_met: bool


class Advice(Struct, frozen=True):
    """The advice, its reason, and the numbers behind it."""

    answer: Answer
    reason: str
    current: int
    """The workers at present."""
    current_sinkers: int = 0
    workers: int | None = None
    """How many to run now: at most one permitted step from `current` towards `needed`."""
    needed: int | None = None
    """The smallest number that suffices at present."""
    sinkers: int | None = None
    needed_sinkers: int | None = None
    hosts: int | None = None
    """The hosts for `workers`, with as many on each as on this one; None: the fleet runs on one host."""
    hot: tuple[HotPartition, ...] = ()
    since: float | None = None
    """When the answer became this one, in Unix seconds."""
    arrivals_per_second: float | None = None
    capacity_per_second: float | None = None
    """The messages that one worker can do per second in full batches."""
    load: float | None = None
    """The load of the most loaded worker; 1 is the capacity of one worker."""
    outcome: Outcome | None = None
    """Whether the last advised change had the expected effect."""

    @classmethod
    def unknown(cls, reason: str, current: int, current_sinkers: int = 0) -> Advice:
        return cls(Answer.UNKNOWN, reason, current, current_sinkers)

    @property
    def sentence(self) -> str:
        """The advice in one sentence, such as `workers 4 -> 6: …`."""
        change = {
            Answer.WORKERS: f" {self.current} -> {self.workers}",
            Answer.SINKERS: f" {self.current_sinkers} -> {self.sinkers}",
        }.get(self.answer, "")
        return f"{self.answer}{change}: {self.reason}"

    def asks_as(self, other: Advice) -> bool:
        """Whether `other` asks for the same change."""
        asked = attrgetter("answer", "workers", "sinkers", "current", "current_sinkers")
        return bool(asked(self) == asked(other))
