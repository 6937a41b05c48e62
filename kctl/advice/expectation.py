"""Whether an advised change had the expected effect once it was made. Pure."""

from __future__ import annotations

from typing import NamedTuple

from kctl.config.sections import AdviceSection


class _Expected(NamedTuple):
    before: int
    after: int
    since: float


class Expectation:
    """Follows the number of processes of one kind."""

    def __init__(self, rules: AdviceSection) -> None:
        self._pause, self._within = rules.pause_seconds, rules.pause_seconds + rules.catch_up_seconds
        self._current = 0
        self._awaited: int | None = None
        self._expected: _Expected | None = None

    def change(self, at: float, current: int) -> None:
        """Records the current number. When it reaches the advised number, the wait for the effect begins."""
        if current != self._current:
            is_awaited = current == self._awaited
            self._expected = _Expected(self._current, current, at) if is_awaited else None
            self._current, self._awaited = current, None

    def advise(self, advised: int | None, needed: int | None) -> None:
        """Records the advice. A step on the way to the needed number creates no expectation yet."""
        if advised is not None and advised == needed != self._current:
            self._awaited = advised

    def outcome(self, at: float, waiting: float, allowed: float) -> tuple[bool, str] | None:
        """Returns whether the change had the expected effect, with a sentence, as soon as this is known. Up to
        `allowed` of the `waiting` messages are normal."""
        expected = self._expected
        if expected is None:
            return None
        seconds, is_met = at - expected.since, waiting <= allowed
        is_over = seconds >= self._within
        if not is_over and not (is_met and expected.after > expected.before and seconds >= self._pause):
            return None
        self._expected = None
        what = f"{expected.before} -> {expected.after} {'worked as expected' if is_met else 'did not work as expected'}"
        return (
            is_met,
            f"{what}: after {seconds:.0f} s, {waiting:,.0f} messages wait, and at most {allowed:,.0f} were expected",
        )
