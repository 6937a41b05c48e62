"""Decides when the advised number of processes changes. The number rises after more processes have been needed
for `up_after_seconds`, and falls after fewer have sufficed for `down_after_seconds`. Limits the size of each change."""

from collections import deque
from math import ceil, inf
from typing import NamedTuple

from kctl.config.sections import AdviceSection

_RECENT = 1 / 3
"""This last part of the wait before a rise decides how large the rise is, because the need grows during a burst."""


class Policy:
    def __init__(self, rules: AdviceSection) -> None:
        self._rules = rules
        self._wanted: deque[tuple[float, int]] = deque()
        """Pairs of a time and the number that was needed from then on."""
        self._began_at = self._steady_at = inf
        self._changed_at = -inf
        self._current: int | None = None
        self._advised = 0

    def interrupted(self) -> None:
        """Restarts the wait of `up_after_seconds`. Call this while the needed number is unknown."""
        self._steady_at = inf

    def advised(self, at: float, needed: int, current: int) -> int:
        rules = self._rules
        self._note(at, needed)
        if current != self._current:
            self._changed_at = -inf if self._current is None else at
            self._current = self._advised = current
        if at - self._changed_at < rules.gap_seconds:
            return self._advised
        least, down = min(self._since(at - rules.up_after_seconds)), max(self._since(at - rules.down_after_seconds))
        wanted = current
        if at - self._steady_at >= rules.up_after_seconds and least > current:
            up = min(self._since(at - rules.up_after_seconds * _RECENT))
            wanted = min(up, max(ceil(current * rules.max_up), current + 1))
        elif at - self._began_at >= rules.down_after_seconds and down < current:
            wanted = max(down, min(ceil(current * (1 - rules.max_down)), current - 1))
        if wanted != self._advised:
            self._advised, self._changed_at = wanted, at
        return wanted

    def _note(self, at: float, needed: int) -> None:
        self._began_at, self._steady_at = min(self._began_at, at), min(self._steady_at, at)
        if not self._wanted or self._wanted[-1][1] != needed:
            self._wanted.append((at, needed))
        while len(self._wanted) > 1 and self._wanted[1][0] <= at - self._rules.down_after_seconds:
            self._wanted.popleft()

    def _since(self, since: float) -> list[int]:
        found = []
        for at, needed in reversed(self._wanted):
            found.append(needed)
            if at <= since:
                break
        return found


class _Change(NamedTuple):
    before: int
    after: int
    at: float
    is_step: bool
    """Whether more than the advised number was needed; then the change is judged only if no more is needed after it."""


class Expectation:
    def __init__(self, rules: AdviceSection) -> None:
        self._pause, self._within = rules.pause_seconds, rules.pause_seconds + rules.catch_up_seconds
        self._current = 0
        self._advised: int | None = None
        self._is_step = False
        self._change: _Change | None = None

    def outcome(
        self, at: float, current: int, advised: int | None, needed: int | None, waiting: float | None, allowed: float
    ) -> tuple[bool, str] | None:
        """Judges each advised change at most once. The call that judges it returns whether it worked, and a sentence.
        All other calls return None. The change worked if `waiting`, the number of pending messages, is at most
        `allowed`. Pass None as `waiting` while processes start, or during an outage."""
        if current != self._current:
            self._change = _Change(self._current, current, at, self._is_step) if current == self._advised else None
            self._current, self._advised = current, None
        change = self._change
        if waiting is None:
            self._change = change and change._replace(at=at)
            return None
        if advised not in (None, current):
            self._advised, self._is_step = advised, advised != needed
        if change is None:
            return None
        seconds, is_met = at - change.at, waiting <= allowed
        is_last = not change.is_step or needed == current
        is_early = is_met and is_last and change.after > change.before and seconds >= self._pause
        if not is_early and seconds < self._within:
            return None
        self._change = None
        if not is_last:
            return None
        what = f"{change.before} -> {change.after} {'worked as expected' if is_met else 'did not work as expected'}"
        return (
            is_met,
            f"{what}: after {seconds:.0f} s, {waiting:,.0f} messages wait, and at most {allowed:,.0f} were expected",
        )
