"""Partitions that the query leaves out because no leader answers, and when each is retried. Pure: times are the
caller's monotonic seconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from kafka import TopicPartition

from kctl_agent.worker.lifecycle.query_groups import RETRY_SECONDS


@dataclass(frozen=True, slots=True)
class _Out:
    why: str
    since: float
    tries: int
    retry_at: float
    is_read: bool = False


class LeftOut:
    def __init__(self) -> None:
        self._out: dict[TopicPartition, _Out] = {}

    def add(self, unanswered: Mapping[TopicPartition, str], now: float) -> None:
        for tp, why in unanswered.items():
            before = self._out.get(tp)
            tries = 0 if before is None else before.tries + 1
            since = now if before is None or before.is_read else before.since
            self._out[tp] = _Out(why, since, tries, now + RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])

    def take_in(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            if tp in self._out:
                self._out[tp] = replace(self._out[tp], is_read=True)

    def keep(self, assigned: Collection[TopicPartition], now: float) -> None:
        for tp, out in list(self._out.items()):
            if tp not in assigned or (out.is_read and now - out.retry_at > RETRY_SECONDS[-1]):
                del self._out[tp]

    def still(self, answered: Collection[TopicPartition], now: float) -> frozenset[TopicPartition]:
        return frozenset(
            tp for tp, out in self._out.items() if not out.is_read and (tp not in answered or now < out.retry_at)
        )

    def lasting(self, seconds: float, now: float) -> dict[TopicPartition, str]:
        return {tp: out.why for tp, out in self._out.items() if not out.is_read and now - out.since >= seconds}
