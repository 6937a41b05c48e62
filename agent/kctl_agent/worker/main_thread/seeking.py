"""Moves a stored offset and the group's committed offset for a `seek`, while no query runs."""

from __future__ import annotations

from dataclasses import dataclass

from kafka import TopicPartition
from kafka.errors import KafkaError

from kctl_agent.errors import StorageError
from kctl_agent.kafka.errors import reason
from kctl_agent.storage.base import OffsetStore
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.worker.consumer_group.commit_errors import refusal
from kctl_agent.worker.consumer_group.membership import Membership
from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.offsets.positions import Found
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.offsets.seek import SeekPlan, plan
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.stats import WorkerStats


class HalfMoved(Exception):
    """The group is reset, or may be, but the stored offset has not moved: the next start reads from there."""


@dataclass(eq=False)
class Seeking:
    """Executes seeks. For the main thread; blocks."""

    _pipeline: Pipeline
    _brokers: Brokers
    _storage: OffsetStore
    _membership: Membership
    _progress: ReadProgress
    _stats: WorkerStats

    def plan(self, tp: TopicPartition, to: str) -> tuple[Found, SeekPlan]:
        """Plans without moving. Raises BadParams, KafkaError, StorageError."""
        found = self._brokers.found([tp])[0][tp]
        position = self.position(tp, found)
        return found, plan(to, found, position, lambda at: self._brokers.offset_at(tp, at))

    def position(self, tp: TopicPartition, found: Found) -> int | None:
        """The next offset that would be stored: the query's position, else the stored, else the committed offset."""
        reached = self._pipeline.positions.get(tp)
        if reached is not None:
            return reached
        stored = self._storage.stored_offsets([tuple(tp)]).get(tuple(tp))
        return stored.next if stored is not None and stored.topic_id == found.topic_id else found.committed

    def move(self, tp: TopicPartition, found: Found, planned: SeekPlan) -> None:
        """Moves the group first: if the broker rejects the commit, nothing has changed. If the stored offset has moved
        meanwhile, the next start sees a reset. Raises MemberLost, KafkaError, StorageError (nothing has changed) or
        HalfMoved."""
        stored_offsets = self._storage.stored_offsets([tuple(tp)])
        stored = stored_offsets.get(tuple(tp))
        try:
            refused = self._membership.commit({tp: planned.target}, is_reset=True)
        except KafkaError as error:
            if error.retriable:  # a try may have succeeded, and its answer been lost
                raise HalfMoved(f"the group may be reset to {planned.target}: {reason(error)}") from error
            raise
        if refused:
            raise refused[tp](f"the group cannot be reset: {refusal(refused)}")
        topic_id = found.topic_id or (stored.topic_id if stored else None)
        try:
            self._storage.init_offsets([StoredOffset(tp.topic, tp.partition, topic_id, planned.target)], stored_offsets)
        except StorageError as error:
            later = (
                f"the group is reset to {planned.target}, and reading goes on there as soon as the storage can be used"
            )
            raise HalfMoved(f"{error}; {later}") from error
        self._progress.commits.done({tp: planned.target})
        self._progress.reached({tp: planned.target})
        if planned.skipped or planned.again:
            kind = "skipped" if planned.skipped else "rewound"
            self._stats.happened(kind, f"on request: {planned.sentence}", tp, (planned.position or 0, planned.target))
