"""Burrow's rules for one partition, as its page of lag evaluation rules and its evaluator have them, to compare with.

It keeps the last ten commits, each with the lag that it had by the end offset that was known then (fetched every ten
seconds), and as many end offsets.
"""

from collections import deque
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

__all__ = ["BURROW_INTERVALS", "BURROW_REFRESH_SECONDS", "Burrow", "BurrowCommit", "BurrowStatus", "evaluated"]

BURROW_INTERVALS = 10
BURROW_REFRESH_SECONDS = 10.0
"""Its defaults."""


class BurrowStatus(StrEnum):
    """`NONE`: it knows nothing of a partition of which it has seen no commit."""

    NONE = "none"
    OK = "OK"
    WARN = "WARN"
    STOP = "STOP"
    STALL = "STALL"
    REWIND = "REWIND"


class BurrowCommit(NamedTuple):
    at: float
    offset: int
    lag: int | None


def evaluated(commits: list[BurrowCommit], ends: list[int], lag: int, now: float, allowed_lag: int = 0) -> BurrowStatus:
    """`lag` is the current one. Seconds; whole ones of now, as Burrow counts them."""
    if lag <= allowed_lag:
        return BurrowStatus.OK
    first, last = commits[0], commits[-1]
    was_caught_up = any(end <= last.offset for end in ends)
    if int(now) - last.at > last.at - first.at and not was_caught_up:
        return BurrowStatus.STOP
    back = next((n for n in range(1, len(commits)) if commits[n].offset < commits[n - 1].offset), None)
    if back is not None and all(each.offset < commits[back - 1].offset for each in commits[back:]):
        return BurrowStatus.REWIND
    lags = [each.lag for each in commits if each.lag is not None]
    if any(each <= allowed_lag for each in lags):
        return BurrowStatus.OK
    if all(later.offset == earlier.offset for earlier, later in pairwise(commits)):
        return BurrowStatus.STALL
    return BurrowStatus.OK if any(later < earlier for earlier, later in pairwise(lags)) else BurrowStatus.WARN


class Burrow:
    """What it has seen of one partition. Every commit is given to it, and the end offset at least every ten seconds."""

    def __init__(self) -> None:
        self._commits: deque[BurrowCommit] = deque(maxlen=BURROW_INTERVALS)
        self._ends: deque[int] = deque(maxlen=BURROW_INTERVALS)
        self._refreshed_at: float | None = None

    def on_end(self, at: float, end: int) -> None:
        if self._refreshed_at is None or at - self._refreshed_at >= BURROW_REFRESH_SECONDS:
            self._ends.append(end)
            self._refreshed_at = at

    def on_commit(self, at: float, offset: int) -> None:
        if self._ends:
            self._commits.append(BurrowCommit(at, offset, max(self._ends[-1] - offset, 0)))

    def status(self, now: float, allowed_lag: int = 0) -> BurrowStatus:
        if not self._commits:
            return BurrowStatus.NONE
        lag = max(self._ends[-1] - self._commits[-1].offset, 0)
        return evaluated(list(self._commits), list(self._ends), lag, now, allowed_lag)
