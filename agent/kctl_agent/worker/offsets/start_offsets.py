"""Decides a query's start offsets from the answers of brokers and storage, and sets the stored offsets."""

import socket
from collections.abc import Mapping, Set
from dataclasses import dataclass

from kafka import TopicPartition
from kafka.errors import LeaderNotAvailableError, UnknownTopicOrPartitionError

from kctl_agent.process import deadline
from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.storage.base import OffsetStore, StorageUnusable
from kctl_agent.storage.chunk import Binding, OtherGroup, StoredOffset
from kctl_agent.storage.put_rules import refuse_moved, refuse_other
from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.offsets.commit_metadata import LogSeen, StorageId
from kctl_agent.worker.offsets.positions import Found, Moved, StartOffset, decide
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.settings import WorkerSettings

CALL_SECONDS = 10.0
"""The longest call of a storage (`worker.main.STORAGE_REPLY_SECONDS`, and a connection)."""


@dataclass(frozen=True, slots=True)
class Decided:
    """Where reading begins. With reset policy `latest`, includes every partition of a topic that was never read."""

    stored_offsets: Mapping[tuple[str, int], StoredOffset]
    found: Mapping[TopicPartition, Found]
    starts: Mapping[TopicPartition, StartOffset]
    unanswered: Mapping[TopicPartition, str]

    @property
    def moves(self) -> list[tuple[TopicPartition, Moved]]:
        return [(tp, moved) for tp, start in sorted(self.starts.items()) for moved in start.moved]

    def source(self, tp: TopicPartition) -> KafkaSource:
        start, before = self.starts[tp], self.stored_offsets.get(tuple(tp))
        version = before.version if before else 0
        if start.stored_offset is not None:
            return KafkaSource(start.offset, start.stored_offset.topic_id, version + 1)
        return KafkaSource(start.offset, before.topic_id if before else None, version)


class StartOffsets:
    """Decides and sets start offsets. `decide` sets `identity`, which identifies the storage in commit metadata."""

    def __init__(self, settings: WorkerSettings, storage: OffsetStore, brokers: Brokers) -> None:
        self._settings = settings
        self._store = storage
        self._brokers = brokers
        self.identity = StorageId("", "")

    def decide(self, partitions: frozenset[TopicPartition], known: Mapping[TopicPartition, LogSeen]) -> Decided:
        """Decides where reading begins. Raises BootstrapError if the storage belongs to another group, or for a
        `Moved` whose setting, such as `workers.on_data_loss`, is `stop`. Raises KafkaError, StorageError."""
        self._bind()
        is_latest = self._settings.kafka.auto_offset_reset == "latest"
        every = self._brokers.partitions_of({tp.topic for tp in partitions})
        described = {tp.topic for tp in every}
        missing = {tp: f"topic {tp.topic} cannot be described" for tp in partitions if tp.topic not in described}
        if len(missing) == len(partitions):
            raise UnknownTopicOrPartitionError(missing[min(missing)])
        stored_offsets = self._storage.stored_offsets([tuple(tp) for tp in every])
        read = {topic for topic, _ in stored_offsets}
        new = {tp for tp in every if tp.topic not in read} if is_latest else set()
        found, unanswered = self._found(partitions.difference(missing), new, known)
        unanswered |= missing
        if not found:
            raise LeaderNotAvailableError(unanswered[min(unanswered)])
        first = {tp: at.log_end if is_latest and tp.topic not in read else at.log_start for tp, at in found.items()}
        starts = {tp: decide(at, stored_offsets.get(tuple(tp)), first[tp], self.identity) for tp, at in found.items()}
        decided = Decided(stored_offsets, found, starts, unanswered)
        if decided.moves:  # perhaps because another owner stored and committed after the stored offsets were read
            self._check_unmoved(decided)
            self._refuse(decided)
        return decided

    def place(self, decided: Decided) -> None:
        placing = [start.stored_offset for start in decided.starts.values() if start.stored_offset is not None]
        if placing:
            self._storage.init_offsets(placing, decided.stored_offsets)

    @property
    def _storage(self) -> OffsetStore:
        if not deadline.allows(CALL_SECONDS):
            raise StorageUnusable("no time is left in this turn to ask the storage")
        return self._store

    def _found(
        self, partitions: frozenset[TopicPartition], new: Set[TopicPartition], known: Mapping[TopicPartition, LogSeen]
    ) -> tuple[dict[TopicPartition, Found], dict[TopicPartition, str]]:
        # All partitions of a `new` topic get a stored offset now. Without one, a partition is read from its start.
        found, unanswered = self._brokers.found(partitions | new, known)
        late = {tp.topic: f"of {tp.topic}-{tp.partition}: {unanswered[tp]}" for tp in new & unanswered.keys()}
        for tp in [tp for tp in found if tp.topic in late]:
            del found[tp]
            unanswered[tp] = f"its topic is new and begun with all of its partitions; {late[tp.topic]}"
        return found, unanswered

    def _check_unmoved(self, decided: Decided) -> None:
        now = self._storage.stored_offsets([tuple(tp) for tp in decided.found])
        for tp in decided.found:
            refuse_moved(tuple(tp), now.get(tuple(tp)), decided.stored_offsets.get(tuple(tp)))

    def _bind(self) -> None:
        owner = Binding(self._settings.kafka.group, self._brokers.cluster_id())
        take_over = self._settings.storage["on_other_storage"] == "take_over"
        try:
            id_ = self._storage.bind(owner, take_over=take_over)
            if not self.identity.id:
                refuse_other(self._store.identity, owner, self._storage.moved_from(), take_over)
        except OtherGroup as error:
            raise BootstrapError(str(error)) from error
        self.identity = StorageId(id_, _name(self._storage))

    def _refuse(self, decided: Decided) -> None:
        storage = self._settings.storage
        for setting, kind, choice, other in (
            ("workers.on_data_loss", "records_lost", self._settings.pipeline.on_data_loss, "continue"),
            ("storage.on_lost_offsets", "storage_lost_offsets", storage["on_lost_offsets"], "continue"),
            ("storage.on_other_storage", "other_storage", storage["on_other_storage"], "take_over"),
        ):
            matching = [(tp, moved) for tp, moved in decided.moves if moved.kind == kind]
            if matching and choice == "stop":
                (tp, moved), more = matching[0], len(matching) - 1
                others = f" (and so for {more} more partition{'s' * (more > 1)})" if more else ""
                remedy = f'with {setting} = "{other}" the worker continues at {decided.starts[tp].offset}'
                raise BootstrapError(
                    f"{setting} is stop, and {tp.topic}-{tp.partition}: {moved.cause}{others}; {remedy}"
                )


def _name(storage: OffsetStore) -> str:
    # Hosts may have different files of one name.
    is_remote = storage.identity.startswith("redis:")
    return storage.identity if is_remote else f"{socket.gethostname()}:{storage.identity}"
