"""The age of a fleet's oldest unhandled message, in Kafka or in the storage, and whether it is too great. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from kctl_agent.replies.block_size import StorageReply

_LEAST_LIMIT_SECONDS = 60.0
_CYCLES = 3.0
_LEAST_WINDOW_SECONDS = 5.0
_LEAST_FALL = 0.1
"""Seconds by which the age falls each second, at least, while a fleet catches up."""


@dataclass(frozen=True, slots=True)
class Unhandled:
    """How a fleet does by its oldest unhandled message, leaving out what is paused on request."""

    seconds: float = 0.0
    """The age, as far as it is known."""
    limit_seconds: float = _LEAST_LIMIT_SECONDS
    is_late: bool = False
    """Whether the age is over the limit and does not fall."""
    is_catching_up: bool = False
    """Whether the age is over the limit and falls."""


UNJUDGED = Unhandled()


def stored_seconds(storage: StorageReply) -> float | None:
    """Returns the age of the oldest message in the storage: 0 if none waits, also in a table; None if not known."""
    if storage.table is not None:
        return 0.0
    if storage.error is not None or storage.pending is None or storage.processing is None:
        return None
    return storage.oldest_seconds if storage.pending + storage.processing else 0.0


def older(*ages: float | None) -> float | None:
    """Returns the greatest age; None if one is not known."""
    known = [age for age in ages if age is not None]
    return max(known) if len(known) == len(ages) else None


def limit_seconds(configured: float, cycle_seconds: float) -> float:
    """Returns the age that is too great; `configured` is 0 where it follows from the usual cycle."""
    return configured or max(_LEAST_LIMIT_SECONDS, _CYCLES * cycle_seconds)


class UnhandledTrend:
    """Judges the age over time. Between commits it climbs by a second each second, and falls with a commit: so the
    lows of windows of a cycle are compared, of this one and the last with that of the one before."""

    def __init__(self, hold_seconds: float) -> None:
        self._hold_seconds = hold_seconds
        self._window_began: float | None = None
        self._low = self._last_low = inf
        self._low_before = -inf
        self._is_late = False
        self._better_since: float | None = None

    def seen(self, seconds: float, limit: float, cycle_seconds: float, now: float) -> Unhandled:
        """Judges the age at `now`, in monotonic seconds. Trouble is over when it has been for `hold_seconds`."""
        window = max(cycle_seconds, _LEAST_WINDOW_SECONDS)
        if self._window_began is None or now - self._window_began >= window:
            if self._window_began is not None:
                self._low_before, self._last_low = self._last_low if self._last_low < inf else -inf, self._low
            self._window_began, self._low = now, inf
        self._low = min(self._low, seconds)
        is_over = seconds > limit
        is_falling = min(self._low, self._last_low) <= self._low_before - _LEAST_FALL * window
        if is_over and not is_falling:
            self._is_late, self._better_since = True, None
        elif self._is_late:
            self._better_since = now if self._better_since is None else self._better_since
            self._is_late = now - self._better_since < self._hold_seconds
        return Unhandled(seconds, limit, self._is_late, is_over and is_falling and not self._is_late)
