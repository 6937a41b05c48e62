"""What a worker knows of the logs that it reads: recreated topics, partitions without a leader.

No clock, no requests. Times are the caller's monotonic seconds; a `BrokerView` is the brokers' last report.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kafka import TopicPartition

from kctl_agent.worker.offsets.brokers import BrokerView


class Reading:
    """Topic ids of the partitions that are read, and since when. For one thread, except `is_void`."""

    def __init__(self) -> None:
        self._topic_ids: dict[TopicPartition, str | None] = {}
        """Ids of the topics when reading them began."""
        self._began_at = 0.0

    def began(self, topic_ids: Mapping[TopicPartition, str | None], now: float) -> None:
        """Records that reading of these partitions begins, with these topic ids."""
        self._began_at = now
        self._topic_ids = {**self._topic_ids, **topic_ids}

    def topic_id(self, tp: TopicPartition) -> str | None:
        """Returns the id of a topic that is read, if known."""
        return self._topic_ids.get(tp)

    def is_void(self, tp: TopicPartition, view: BrokerView) -> bool:
        """Whether the topic was deleted or recreated since reading began, which invalidates its offsets."""
        began = self._topic_ids.get(tp)
        is_newer = view.taken_at is not None and view.taken_at > self._began_at
        return began is not None and is_newer and view.topic_ids.get(tp.topic) != began

    def is_recreated(self, running: Collection[TopicPartition], view: BrokerView) -> bool:
        """Whether a topic that is read was recreated."""
        return any(self.is_void(tp, view) and tp.topic in view.topic_ids for tp in running)

    def is_without_leader(self, running: Collection[TopicPartition], view: BrokerView, seconds: float) -> bool:
        """Whether a partition has had no leader for so long: Spark's request for ends fails for all."""
        if view.taken_at is None or view.taken_at < self._began_at:
            return False
        return any(view.taken_at - each.since > seconds for tp, each in view.unanswered.items() if tp in running)
