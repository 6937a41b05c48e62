"""A worker's knowledge of the logs that it reads: recreated topics, partitions without a leader. No clock, no
requests."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka import TopicPartition

from kctl_agent.worker.offsets.brokers import BrokerView


class Reading:
    """The topics that a worker reads. For one thread, except `is_void`."""

    def __init__(self) -> None:
        self._topic_ids: dict[TopicPartition, str | None] = {}
        """Topic ids as of when reading began."""
        self._began_at = 0.0

    def began(self, topic_ids: Mapping[TopicPartition, str | None], now: float) -> None:
        self._began_at = now
        self._topic_ids = {**self._topic_ids, **topic_ids}

    def topic_id(self, tp: TopicPartition) -> str | None:
        return self._topic_ids.get(tp)

    def is_void(self, tp: TopicPartition, view: BrokerView) -> bool:
        began = self._topic_ids.get(tp)
        is_newer = view.taken_at is not None and view.taken_at > self._began_at
        return began is not None and is_newer and view.topic_ids.get(tp.topic) != began

    def is_recreated(self, running: Collection[TopicPartition], view: BrokerView) -> bool:
        return any(self.is_void(tp, view) and tp.topic in view.topic_ids for tp in running)

    def is_without_leader(self, running: Collection[TopicPartition], view: BrokerView, seconds: float) -> bool:
        """Whether a running partition has had no leader for this long: Spark's request for ends then fails for all
        partitions."""
        if view.taken_at is None or view.taken_at < self._began_at:
            return False
        return any(view.taken_at - each.since > seconds for tp, each in view.unanswered.items() if tp in running)
