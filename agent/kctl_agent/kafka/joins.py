"""Works around joins of a consumer group that kafka-python 3.0.12 loses track of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.coordinator.base import MemberState


def take_up_forgotten_join(consumer: Any) -> None:
    """Resumes joins that outlast a poll, which kafka-python 3.0.12 forgets. Call it before each poll.

    - A join caused by new metadata: the leader's own assignment makes `need_rejoin` false, so the result is never
      awaited; with heartbeats off, the member is evicted for ever.
    - A join that ends between two polls: the next poll starts another one instead of taking the result, so all members
      rejoin. Two members whose polls are far apart can keep each other from reading for ever.
    """
    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to ask
    if consumer.group_metadata().state != MemberState.REBALANCING:
        return
    if not coordinator.need_rejoin():
        coordinator.request_rejoin()
    join = coordinator._join_task  # noqa: SLF001
    if join is not None and join.is_done and join.exception is None:
        coordinator._join_task = _EndedJoin(join.value)  # noqa: SLF001


class _EndedJoin:
    """A future with this value for `BaseCoordinator.join_group_async`, which does not await one that is done."""

    is_done = False

    def __init__(self, value: Any) -> None:
        self._value = value

    def add_callback(self, callback: Callable[[Any], Any]) -> None:
        callback(self._value)

    def add_errback(self, callback: Callable[[BaseException], Any]) -> None: ...
