"""Executes accepted operations one after another in turns of the main thread."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from kafka import TopicPartition
from kafka.errors import KafkaError

from kctl_agent.errors import AgentError, StorageError
from kctl_agent.kafka.errors import reason
from kctl_agent.rpc.commands import PauseScopes, SeekPartition
from kctl_agent.rpc.operations import AcceptedOperation, Inbox, Outcome, is_paused, outcome_of
from kctl_agent.storage.base import OffsetStore
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.worker.consumer_group.commits import refusal
from kctl_agent.worker.consumer_group.membership import MemberLost, Membership, partition_names
from kctl_agent.worker.lifecycle.machine import Action, Lifecycle
from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.offsets.positions import Found, SeekPlan, plan
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.stats import WorkerStats

log = logging.getLogger("kctl_agent.worker")

OPERATIONS = (PauseScopes, SeekPartition)

_WAITS = Outcome("waiting", "the running batch is finished first")


class HalfMoved(Exception):
    """A seek did not move the stored offset. If it moved the group's offset, the next query starts there."""


@dataclass(eq=False)
class Seeking:
    _pipeline: Pipeline
    _brokers: Brokers
    _storage: OffsetStore
    _membership: Membership
    _progress: ReadProgress
    _stats: WorkerStats

    def plan(self, tp: TopicPartition, to: str) -> tuple[Found, SeekPlan]:
        """Plans a seek without moving any offset. Raises BadParams, KafkaError, StorageError."""
        found = self._brokers.found([tp])[0][tp]
        position = self.position(tp, found)
        return found, plan(to, found, position, lambda at: self._brokers.offset_at(tp, at))

    def position(self, tp: TopicPartition, found: Found) -> int | None:
        """Returns the query's position, or else the stored offset, or else the committed offset. Ignores a stored
        offset with another topic id than that of `found`."""
        reached = self._pipeline.positions.get(tp)
        if reached is not None:
            return reached
        stored = self._storage.stored_offsets([tuple(tp)]).get(tuple(tp))
        return stored.next if stored is not None and stored.topic_id == found.topic_id else found.committed

    def move(self, tp: TopicPartition, found: Found, planned: SeekPlan) -> None:
        """Moves the group's offset and afterwards the stored offset. Raises MemberLost, KafkaError or StorageError if
        neither has moved. Raises HalfMoved if the group's offset may have moved."""
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
                f"the group is reset to {planned.target}, and reading continues there as soon as the storage can be "
                "used"
            )
            raise HalfMoved(f"{error}; {later}") from error
        self._progress.commits.done({tp: planned.target})
        self._progress.reached({tp: planned.target})
        if planned.skipped or planned.again:
            kind = "skipped" if planned.skipped else "rewound"
            self._stats.happened(kind, f"on request: {planned.sentence}", tp, (planned.position or 0, planned.target))


@dataclass(eq=False)
class Requests:
    _name: str
    _inbox: Inbox
    _membership: Membership
    _lifecycle: Lifecycle
    _seeking: Seeking
    _perform: Callable[[Iterable[Action]], None]
    _on_lost: Callable[[], None]
    _describe: Callable[[KafkaError, str], str]
    _waiting: list[AcceptedOperation] = field(default_factory=list)

    def carry_out(self) -> None:
        """Executes operations until one must wait for a running batch."""
        self._waiting += self._inbox.take()
        while self._waiting:
            operation = self._waiting[0]
            outcome = self._inbox.dropped(operation) or self._outcome(operation)
            self._inbox.report(operation.id, outcome)
            if outcome.state == "waiting":
                return
            if self._lifecycle.is_seeking:  # also after a dropped seek, which has drained the queries
                self._lifecycle.seek_ended()
            log.info("%s %s: %s; operation %s", operation.rpc, outcome.state, outcome.text, operation.id)
            del self._waiting[0]

    def _outcome(self, operation: AcceptedOperation) -> Outcome:
        try:
            return outcome_of(operation, {"pause": self._pause, "seek": self._seek})
        except HalfMoved as error:
            return Outcome("unknown", str(error))
        except KafkaError as error:
            return Outcome("failed", self._describe(error, f"{operation.rpc} failed"))
        except MemberLost as error:
            self._on_lost()
            return Outcome("failed", str(error))
        except AgentError as error:
            return Outcome("failed", str(error))

    def _pause(self, _operation: AcceptedOperation) -> Outcome:
        scopes = self._inbox.paused
        if any(is_paused(scopes, tp.topic, tp.partition) for tp in self._lifecycle.reading):
            return _WAITS
        paused = [tp for tp in self._membership.partitions if is_paused(scopes, tp.topic, tp.partition)]
        return Outcome("done", f"paused {partition_names(paused)}" if paused else "nothing is paused")

    def _seek(self, operation: AcceptedOperation) -> Outcome:
        seek = SeekPartition(**operation.params)
        tp = TopicPartition(seek.topic, seek.partition)
        if tp not in self._membership.partitions:
            return Outcome("failed", f"{self._name} does not own {tp.topic}-{tp.partition} now")
        found, planned = self._seeking.plan(tp, seek.to)
        if seek.dry_run:
            return Outcome("done", planned.sentence, planned.to_json())
        self._perform(self._lifecycle.seek_requested())
        if not self._lifecycle.is_drained:
            return _WAITS
        if dropped := self._inbox.begin(operation):
            return dropped
        planned = replace(planned, position=self._seeking.position(tp, found))  # where reading ended
        self._perform(self._lifecycle.seek_begun())
        self._seeking.move(tp, found, planned)
        return Outcome("done", planned.sentence, planned.to_json())
