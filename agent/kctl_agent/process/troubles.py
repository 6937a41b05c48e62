"""The troubles of a process: outages and errors, at most one for each `part`, such as `commit`."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kctl_agent.replies.workers import Outside, WaitingFor

GRACE_SECONDS = 10.0
"""Within this time a moving coordinator, a commit in a rebalance or an election may heal by itself."""


@dataclass(frozen=True, slots=True)
class _Trouble:
    why: str
    outside: Outside | None
    since: float
    at: float  # Unix seconds
    grace_seconds: float
    is_reported: bool = False

    def is_error(self, now: float) -> bool:
        return now - self.since >= self.grace_seconds


class Troubles:
    def __init__(self) -> None:
        self._of: dict[str, _Trouble] = {}

    def met(
        self, part: str, why: str, now: float, at: float, outside: Outside | None = None, grace_seconds: float = 0.0
    ) -> bool:
        """Records a trouble, and returns whether to log it. `now` is monotonic, `at` is in Unix seconds."""
        before = self._of.get(part)
        trouble = _Trouble(why, outside, now, at, grace_seconds)
        if before is not None and before.outside == outside:
            is_known = before.why == why or outside is not None
            trouble = replace(before, why=why, is_reported=before.is_reported and is_known)
        is_due = trouble.is_error(now) and not trouble.is_reported
        self._of[part] = replace(trouble, is_reported=trouble.is_reported or is_due)
        return is_due

    def over(self, part: str) -> bool:
        return self._of.pop(part, None) is not None

    def waiting_for(self) -> WaitingFor | None:
        """Returns the engine's outage, which may have caused the other outages. Without one, returns the oldest."""
        first = self._first_outage()
        return None if first is None or first.outside is None else WaitingFor(first.outside, first.why, first.at)

    def outside(self, besides: str) -> Outside | None:
        first = self._first_outage(besides)
        return None if first is None else first.outside

    def error(self, now: float) -> str | None:
        """Returns the trouble to show. Prefers an outage, because an outage may have caused the other troubles."""
        errors = [each for each in self._of.values() if each.is_error(now)]
        first = _first(each for each in errors if each.outside is not None) or _first(errors)
        if first is None or first.outside is None:
            return None if first is None else first.why
        since = datetime.fromtimestamp(first.at, UTC)
        return f"waits for the {first.outside} since {since:%Y-%m-%dT%H:%M:%SZ}: {first.why}"

    def _first_outage(self, besides: str = "") -> _Trouble | None:
        return _first(each for part, each in self._of.items() if each.outside is not None and part != besides)


def _first(troubles: Iterable[_Trouble]) -> _Trouble | None:
    return min(troubles, key=lambda each: (each.outside != "engine", each.since), default=None)
