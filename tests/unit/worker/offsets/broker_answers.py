from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import TopicPartition

from kctl_agent.storage.file import FileStorage
from kctl_agent.worker.offsets.brokers import Topics
from kctl_agent.worker.offsets.commit_metadata import CommitNote
from kctl_agent.worker.offsets.positions import Found
from kctl_agent.worker.offsets.start_offsets import StartOffsets
from kctl_agent.worker.settings import KafkaSettings, PipelineSettings, WorkerSettings

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPICS = {"orders": 2, "payments": 1}
ORDERS_0, ORDERS_1, PAYMENTS_0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)
EVERYTHING = frozenset({ORDERS_0, ORDERS_1, PAYMENTS_0})


@dataclass
class Answers:
    """Logs end at 100. `meanwhile` runs before each answer about offsets."""

    committed: dict[TopicPartition, tuple[int, CommitNote | None]] = field(default_factory=dict)
    unanswered: dict[TopicPartition, str] = field(default_factory=dict)
    partitions: tuple[TopicPartition, ...] = (T0, T1)
    meanwhile: Callable[[], None] = lambda: None
    log_start: int = 0
    error: Exception | None = None  # raised by a question about topics

    def topics(self) -> Topics:
        if self.error is not None:
            raise self.error
        return Topics((), {}, {})

    def brokers(self) -> tuple[()]:
        return ()

    def describe(self, error: Exception, what: str) -> str:
        return f"{what}: {error}"

    def cluster_id(self) -> str:
        return "K"

    def partitions_of(self, topics: Collection[str]) -> set[TopicPartition]:
        return {tp for tp in self.partitions if tp.topic in topics}

    def found(
        self, partitions: Collection[TopicPartition], known: Mapping[TopicPartition, object]
    ) -> tuple[dict[TopicPartition, Found], dict[TopicPartition, str]]:
        self.meanwhile()
        found = {
            tp: Found(tp.topic, tp.partition, "A", offset, self.log_start, 100, note)
            for tp in partitions
            if tp not in self.unanswered
            for offset, note in [self.committed.get(tp, (None, None))]
        }
        return found, {tp: why for tp, why in self.unanswered.items() if tp in partitions}


def start_offsets(storage: FileStorage, answers: Answers, **settings: str) -> StartOffsets:
    kafka = KafkaSettings(
        "b:1", "g", ("t", "u"), settings.get("reset", "earliest"), "range", 6, 1, "read_uncommitted", None
    )
    pipeline = PipelineSettings("", Path(), 1, 0.0, settings.get("on_data_loss", "continue"), 1.0)
    own = {"on_lost_offsets": "stop", "on_other_storage": "stop"} | settings
    whole = WorkerSettings(
        name="w", run_dir=Path(), scratch_dir=Path(), log_level="INFO", kafka=kafka, pipeline=pipeline, storage=own
    )
    brokers: Any = answers
    return StartOffsets(whole, storage, brokers)
