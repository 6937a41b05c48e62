"""The verdict on a fleet as a whole, and its findings."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """Levels of a verdict, from best to worst."""

    OK = "ok"
    DEGRADED = "degraded"
    """Messages flow, but something needs attention or is restarting."""
    UNKNOWN = "unknown"
    """The data for a judgement is missing or too old."""
    FAILING = "failing"
    """Messages of at least one partition do not flow, or are lost."""

    @property
    def severity(self) -> int:
        return _SEVERITY[self]

    @property
    def is_ready(self) -> bool:
        return self in (Level.OK, Level.DEGRADED)


UNOWNED = "unowned"
"""The `about` of a finding that all hosts of a fleet share: no host reads some partitions."""
_SEVERITY = {level: number for number, level in enumerate(Level)}


class Finding(Struct, frozen=True):
    """A problem of a fleet, or the fact that the fleet has no problem."""

    level: Level
    about: str
    """The part of the fleet: `master`, `brokers`, `storage`, `engine`, `workers`, `sinkers`, `handler`, `handler
    calls`, `dead letters`, `unhandled`, `attached`, `partitions`, `replicas`, `registry`, `disk`, `topic orders`;
    with several hosts `unowned` (partitions) and `hosts`; `fleet` without a problem."""
    reason: str
    """A sentence: what, since when, why."""
    since: float
    """Unix seconds."""


class Verdict(Finding, frozen=True):
    """The gravest finding, with all further findings in `also`."""

    also: tuple[Finding, ...] = ()
    oldest_unhandled_seconds: float | None = None
    """The age of the fleet's oldest unhandled message, if known."""
    works: tuple[str, ...] = ()
    """With several hosts, the parts of the fleet's work that this host does for all: `engine`, `workers`, and `sinkers`
    with a shared storage. Another host's problem with such a part is only `degraded`."""
    has_own_storage: bool = False
    """Whether this host of several has a storage of its own."""

    @property
    def main(self) -> Finding:
        return Finding(self.level, self.about, self.reason, self.since)

    @property
    def own_work(self) -> Finding:
        """The gravest finding except `UNOWNED`, which concerns all hosts."""
        own = (each for each in (self.main, *self.also) if each.about != UNOWNED)
        return next(own, Finding(Level.OK, "fleet", f"this host does its work; {self.reason}", self.since))

    @property
    def sentence(self) -> str:
        return f"{self.level}: {self.reason}"

    @classmethod
    def of(cls, main: Finding, also: tuple[Finding, ...] = (), oldest: float | None = None) -> Verdict:
        return cls(main.level, main.about, main.reason, main.since, also, oldest)
