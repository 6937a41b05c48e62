"""A cache of the results of commands that the collector does not ask for each snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Generic, TypeVar

from msgspec import Raw

from kctl.master.reduction import ReducedCommand, reduced
from kctl.master.snapshot import Reduced
from kctl.reduce.base import BrokerSnapshot, Freshness
from kctl.rpc.fan_out import FanOut

R = TypeVar("R")
T = TypeVar("T")

_ANY_AGE = Freshness(0.0, 0.0, inf, None)
"""Freshness of a cached result, which is judged for each snapshot."""


class CachedCommand(Generic[R, T]):
    """The last result of a command, with its age. `is_settled` is false of a result that is no good for later."""

    def __init__(self, command: ReducedCommand[R, T], is_settled: Callable[[T], bool] = lambda _: True) -> None:
        self.command = command
        self._is_settled = is_settled
        self._result: Reduced[T] | None = None
        self._shown_by: object = None
        self._asked_at = 0.0

    def is_due(self, shown_by: object, now: float, longest_seconds: float) -> bool:
        """Whether the command is to be asked again: its result is old, somebody did not answer, or `shown_by`, which
        would show that the result has changed, is another than it was."""
        result = self._result
        return (
            result is None
            or not result.complete
            or not self._is_settled(result.result)
            or self._shown_by != shown_by
            or now - self._asked_at >= longest_seconds
        )

    def keep(self, outcome: FanOut[Raw], shown_by: object, now: float) -> None:
        """Keeps a result. With thousands of partitions it takes a while."""
        self._result = reduced(self.command, self.command.decoded(outcome), BrokerSnapshot(), _ANY_AGE)
        self._shown_by, self._asked_at = shown_by, now

    def at(self, now: float) -> Reduced[T]:
        """Returns the result with the age that it has at `now`."""
        assert self._result is not None
        age = self._result.age_seconds
        return replace(self._result, age_seconds=None if age is None else age + now - self._asked_at)
