"""The age of a fleet's oldest unhandled message, in Kafka or the storage, and whether this age is too great. Pure."""

from dataclasses import dataclass
from math import inf

from kctl_agent.replies.block_size import StorageReply

_LEAST_LIMIT_SECONDS = 60.0
_CYCLES = 3.0
_LEAST_WINDOW_SECONDS = 5.0
_LEAST_FALL = 0.1  # while a fleet catches up, the age falls by at least this many seconds per second
_FALL_WINDOWS = 2.0
"""The age must fall by this many windows, because late or incomplete commits cause smaller falls."""
_NEAR_WINDOWS = 4.0
"""How long the age must stay below the limit while the next window may raise it again."""
_MEMORY = _FALL_WINDOWS / _LEAST_FALL  # the age must fall by `_FALL_WINDOWS` within this many windows


@dataclass(frozen=True, slots=True)
class Unhandled:
    """The age of the fleet's oldest unhandled message. Partitions paused on request do not count."""

    seconds: float | None = 0.0
    limit_seconds: float = _LEAST_LIMIT_SECONDS
    is_late: bool = False
    is_catching_up: bool = False


UNJUDGED = Unhandled()


def stored_seconds(storage: StorageReply) -> float | None:
    """Returns the age of the storage's oldest unhandled message: 0 without one or for a table, None if unknown."""
    if storage.table is not None:
        return 0.0
    if storage.error is not None or storage.pending is None or storage.processing is None:
        return None
    return storage.oldest_seconds if storage.pending + storage.processing else 0.0


def older(*ages: float | None) -> float | None:
    """Returns the greatest age, or None if any age is unknown."""
    known = [age for age in ages if age is not None]
    return max(known) if len(known) == len(ages) else None


def limit_seconds(configured: float, cycle_seconds: float) -> float:
    """Returns `configured`. If that is 0, returns three cycles, but at least 60 s."""
    return configured or max(_LEAST_LIMIT_SECONDS, _CYCLES * cycle_seconds)


class UnhandledTrend:
    """Judges the age of the oldest unhandled message over time.

    The age grows by a second per second, and drops with each commit. So the trend follows the lowest age of each
    window. A window is as long as a cycle.
    """

    def __init__(self, hold_seconds: float) -> None:
        self._hold_seconds = hold_seconds
        self._window_began = -inf
        self._low = self._last_low = inf
        self._is_falling = False
        self._turn, self._turned_at = -inf, -inf
        """The highest low, or while the age falls the lowest, and when it was seen."""
        self._last = UNJUDGED
        self._better_since: float | None = None

    def seen(self, seconds: float | None, limit: float, cycle_seconds: float, now: float) -> Unhandled:
        """Judges the age `seconds` at `now` (monotonic). If the age is unknown (None), `is_late` stays unchanged.

        `is_late` becomes false once the age has been below the limit, or falling, for `hold_seconds`. If the age is
        less than a window's length below the limit, this takes at least `_NEAR_WINDOWS` windows.
        """
        if seconds is None:
            self._last = Unhandled(None, limit, self._last.is_late)
            return self._last
        window = max(cycle_seconds, _LEAST_WINDOW_SECONDS)
        self._follow(seconds, window, now)
        is_over, is_late = seconds > limit, self._last.is_late
        if is_over and not self._is_falling:
            is_late, self._better_since = True, None
        elif is_late:
            self._better_since = now if self._better_since is None else self._better_since
            is_near = 0.0 < limit - window <= seconds <= limit
            is_late = now - self._better_since < max(self._hold_seconds, is_near * _NEAR_WINDOWS * window)
        self._last = Unhandled(seconds, limit, is_late, is_over and not is_late)
        return self._last

    def _follow(self, seconds: float, window: float, now: float) -> None:
        if now - self._window_began >= window:
            self._last_low, self._window_began, self._low = self._low, now, inf
        self._low = min(self._low, seconds)
        # A fall begins when the low is two window lengths below the highest low of `_MEMORY` windows. It ends when the
        # low has risen by a window length, or has fallen too slowly for `_MEMORY` windows.
        low, passed = min(self._low, self._last_low), now - self._turned_at
        fell = self._turn - low
        if self._is_falling:
            is_turn = fell <= -window or passed > _MEMORY * window
            is_next = is_turn or fell >= _LEAST_FALL * passed
        else:
            is_turn = fell >= _FALL_WINDOWS * window
            is_next = is_turn or fell <= 0.0 or passed > _MEMORY * window
        if is_turn:
            self._is_falling = not self._is_falling
        if is_next:
            self._turn, self._turned_at = low, now
