"""Joins of a consumer group that kafka-python loses track of (3.0.12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.coordinator.base import MemberState


def take_up_forgotten_join(consumer: Any) -> None:
    """Resumes joins that outlast a poll, which kafka-python 3.0.12 forgets; to be called before each poll.

    - One that was caused by new metadata: the leader's own assignment makes `need_rejoin` false, so nobody awaits the
      result; with its heartbeats off the member is evicted, for good.
    - One that ends between two polls: the next begins another instead of taking the result, and so all others have to
      join again. Two members whose polls are far apart keep each other from reading, for as long as that lasts."""
    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to ask
    if consumer.group_metadata().state != MemberState.REBALANCING:
        return
    if not coordinator.need_rejoin():
        coordinator.request_rejoin()
    join = coordinator._join_task  # noqa: SLF001
    if join is not None and join.is_done and join.exception is None:
        coordinator._join_task = _EndedJoin(join.value)  # noqa: SLF001


class _EndedJoin:
    """A future with this value for `BaseCoordinator.join_group_async`, which awaits none that is done."""

    is_done = False

    def __init__(self, value: Any) -> None:
        self._value = value

    def add_callback(self, callback: Callable[[Any], Any]) -> None:
        callback(self._value)

    def add_errback(self, callback: Callable[[BaseException], Any]) -> None:
        """Does nothing: the join has not failed."""
