"""The verdict on a fleet as a whole: one level, one reason, and what else is wrong."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """Levels of a verdict, from the best to the worst."""

    OK = "ok"
    DEGRADED = "degraded"
    """Messages flow, and something needs a look or is being restarted."""
    UNKNOWN = "unknown"
    """What the fleet would be judged by is not there yet, or too old."""
    FAILING = "failing"
    """Messages of a partition at least do not flow, or are lost."""

    @property
    def severity(self) -> int:
        return _SEVERITY[self]

    @property
    def is_ready(self) -> bool:
        """Whether the fleet does its work."""
        return self in (Level.OK, Level.DEGRADED)


UNOWNED = "unowned"
"""What a finding is about that every host of a fleet has alike: partitions that no host reads."""
_SEVERITY = {level: number for number, level in enumerate(Level)}


class Finding(Struct, frozen=True):
    """One thing that is wrong with a fleet, or that nothing is."""

    level: Level
    about: str
    """The part of the fleet: `master`, `brokers`, `storage`, `engine`, `workers`, `sinkers`, `handler`,
    `handler calls`, `dead letters`, `unhandled`, `attached`, `partitions`, `replicas`, `topic orders`; `unowned`
    (partitions) and `hosts` in a fleet on several; `fleet` if all is well."""
    reason: str
    """A sentence: what, since when, why."""
    since: float
    """Unix seconds since when it is so."""


class Verdict(Finding, frozen=True):
    """The gravest finding, and the others, the gravest first."""

    also: tuple[Finding, ...] = ()
    oldest_unhandled_seconds: float | None = None
    """The age of the fleet's oldest unhandled message; None if it is not known."""
    works: tuple[str, ...] = ()
    """The parts of the fleet's work that a host of several does for all hosts: `engine`, `workers`, and `sinkers` if
    the hosts share a storage. While it does, trouble of another host with that part is `degraded` for the fleet."""
    has_own_storage: bool = False
    """Whether a host of several has a storage of its own."""

    @property
    def main(self) -> Finding:
        """Returns the gravest finding without the others."""
        return Finding(self.level, self.about, self.reason, self.since)

    @property
    def own_work(self) -> Finding:
        """Returns the gravest finding about what the host itself has to do."""
        own = (each for each in (self.main, *self.also) if each.about != UNOWNED)
        return next(own, Finding(Level.OK, "fleet", f"this host does its work; {self.reason}", self.since))

    @property
    def sentence(self) -> str:
        return f"{self.level}: {self.reason}"

    @classmethod
    def of(cls, main: Finding, also: tuple[Finding, ...] = (), oldest: float | None = None) -> Verdict:
        return cls(main.level, main.about, main.reason, main.since, also, oldest)
