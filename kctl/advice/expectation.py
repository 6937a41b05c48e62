"""Whether an advised change had the expected effect once it was made. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kctl.config.sections import AdviceSection


class _Change(NamedTuple):
    before: int
    after: int
    at: float
    is_step: bool
    """Whether more was needed when it was advised. Then it is judged only if no more is needed afterwards."""


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
        """Returns whether the last advised change had the expected effect, with a sentence, as soon as this is known.
        `waiting` has the pending messages, None while the effect cannot be judged; `allowed` of them are normal."""
        if current != self._current:
            self._change = _Change(self._current, current, at, self._is_step) if current == self._advised else None
            self._current, self._advised = current, None
        change = self._change
        if waiting is None:  # the processes start, or there is an outage
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
