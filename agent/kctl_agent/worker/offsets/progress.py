"""Progress of reading and committing, as one worker knows it."""

from collections.abc import Collection, Mapping

from kafka import TopicPartition

from kctl_agent.worker.consumer_group.commits import Commits
from kctl_agent.worker.offsets.brokers import BrokerView
from kctl_agent.worker.offsets.commit_metadata import CommitNote, Epochs, StorageId
from kctl_agent.worker.offsets.start_offsets import Decided


class Reading:
    """The topics that a worker reads. Any thread may call `is_void` and `topic_id`."""

    def __init__(self) -> None:
        self._topic_ids: dict[TopicPartition, str | None] = {}  # topic ids as of when reading began
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
        """Whether the leader of a `running` partition has not answered for `seconds`. Until it answers, Spark
        cannot start a batch, even of the query's other partitions."""
        if view.taken_at is None or view.taken_at < self._began_at:
            return False
        return any(view.taken_at - since > seconds for tp, since in view.unanswered_since.items() if tp in running)


class ReadProgress:
    """How far a worker has read and committed. Any thread may read it. The main, rebalance and I/O threads write it."""

    def __init__(self) -> None:
        self.commits = Commits()
        self.epochs = Epochs()
        self.reading = Reading()
        self._reached: dict[TopicPartition, int] = {}

    def note(self, tp: TopicPartition, storage: StorageId) -> str:
        """Returns the metadata to commit with an offset of this partition. kafka-python's I/O thread calls it too."""
        return CommitNote(storage, self.reading.topic_id(tp), self.epochs.seen(tp)).format()

    def began(
        self, decided: Decided, partitions: Collection[TopicPartition], assigned: Collection[TopicPartition], now: float
    ) -> None:
        found = {tp: decided.found[tp] for tp in partitions}
        self.reading.began({tp: at.topic_id for tp, at in found.items()}, now)
        self.epochs.began({tp: at.seen for tp, at in found.items()})
        committed = {tp: at.committed for tp, at in found.items() if at.committed is not None}
        others = {tp: at for tp, at in self.commits.known.items() if tp in assigned and tp not in found}
        self.commits.known = others | committed

    def reached(self, ends: Mapping[TopicPartition, int]) -> None:
        self._reached = {**self._reached, **ends}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._reached[tp] for tp in partitions if tp in self._reached}

    def positions(
        self, assigned: Collection[TopicPartition], running: Mapping[TopicPartition, int], view: BrokerView
    ) -> dict[TopicPartition, int | None]:
        reached = {**self._reached, **running}
        return {tp: None if self.reading.is_void(tp, view) else reached.get(tp) for tp in assigned}

    def committed(self, view: BrokerView) -> dict[TopicPartition, int]:
        return {tp: offset for tp, offset in self.commits.known.items() if not self.reading.is_void(tp, view)}
