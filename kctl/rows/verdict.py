"""How a fleet as a whole is doing: one level, one reason, and what else is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kctl.rows import fields
from kctl.rows.fields import BadResult
from kctl_agent.wire import JsonObject

__all__ = ["Finding", "Level", "Verdict", "verdict_of"]


class Level(StrEnum):
    """From the best to the worst."""

    OK = "ok"
    DEGRADED = "degraded"
    """Messages flow, and something needs a look or is being restarted."""
    UNKNOWN = "unknown"
    """What it would be judged by is not there yet, or too old."""
    FAILING = "failing"
    """Messages of a partition at least do not flow, or are lost."""

    @property
    def severity(self) -> int:
        return _SEVERITY[self]

    @property
    def is_ready(self) -> bool:
        """Whether the fleet does its work."""
        return self in (Level.OK, Level.DEGRADED)


_SEVERITY = {level: number for number, level in enumerate(Level)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a fleet, or that nothing is."""

    level: Level
    about: str
    """`master`, `brokers`, `storage`, `engine`, `workers`, `sinkers`, `attached`, `partitions`, `replicas`; `fleet` if
    all is well."""
    reason: str
    """A sentence: what, since when, why."""
    since: float
    """Unix seconds."""

    def to_json(self) -> JsonObject:
        return {"level": self.level.value, "about": self.about, "reason": self.reason, "since": self.since}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gravest finding, and the others, the gravest first."""

    main: Finding
    also: tuple[Finding, ...] = ()

    @property
    def level(self) -> Level:
        return self.main.level

    @property
    def sentence(self) -> str:
        return f"{self.level}: {self.main.reason}"

    def to_json(self) -> JsonObject:
        return {**self.main.to_json(), "also": [each.to_json() for each in self.also]}


def verdict_of(result: JsonObject) -> Verdict:
    """The one in a master's answer."""
    return Verdict(_finding(result), tuple(map(_finding, fields.objects(result, "also") or ())))


def _finding(value: JsonObject) -> Finding:
    level = fields.required(fields.text(value, "level"), "level")
    if level not in _SEVERITY:
        raise BadResult('"level" is not one of this release')
    return Finding(
        Level(level),
        fields.required(fields.text(value, "about"), "about"),
        fields.required(fields.text(value, "reason"), "reason"),
        fields.required(fields.number(value, "since"), "since"),
    )
