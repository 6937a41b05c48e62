from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError

from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.worker.main_thread.main_loop import LogChecks
from kctl_agent.worker.offsets.brokers import BrokerView
from kctl_agent.worker.offsets.commit_metadata import LogSeen
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.query.run import Run
from tests.scratch_storage import ScratchStorage
from tests.unit.worker.query.frames import Query
from tests.worker_settings import settings

TP = TopicPartition("t", 0)
SOURCES = {TP: KafkaSource(10, None, 1)}


class Checks:
    def __init__(self, folder: Path, stored: int | None = 10) -> None:
        self.storage = ScratchStorage()
        if stored is not None:
            self.storage.init_offsets([StoredOffset("t", 0, None, stored)])
        self.pipeline = Pipeline(settings(folder), self.storage, lambda _: None)
        self.run = Run(self.pipeline.batch_put(self.storage), SOURCES, folder / "checkpoint", self.pipeline.on_batch)
        self.run.query = Query()
        self.pipeline._runs = {frozenset(SOURCES): self.run}
        self.progress = ReadProgress()
        self.progress.epochs.began({TP: LogSeen(1, 8)})
        self.diverged: dict[TopicPartition, int] = {}
        self.error: KafkaError | None = None
        self.questions = 0
        brokers: Any = SimpleNamespace(divergences_of_each=self._divergences)
        self.checks = LogChecks(self.pipeline, brokers, self.storage, self.progress)

    def check(self, view: BrokerView) -> bool:
        self.checks.check(SOURCES, view)
        return bool(self.pipeline.draining)

    def _divergences(self, *_: object) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
        self.questions += 1
        if self.error:
            raise self.error
        return self.diverged, {}


def view(epoch: int = 1) -> BrokerView:
    return BrokerView(starts={TP: 0}, ends={TP: 12}, taken_at=1.0, logs={TP: LogSeen(epoch, 12)})


CASES: dict[str, tuple[int | None, int | None, int, bool]] = {
    "everything is there": (10, None, 1, False),
    "the storage has lost the offset": (None, None, 1, True),
    "the storage has gone back": (7, None, 1, True),
    "the storage is ahead": (15, None, 1, False),
    "the log differs below what was read": (10, 9, 2, True),
    "the log differs above what was read": (10, 11, 2, False),
}


@pytest.mark.parametrize(("stored", "diverged", "epoch", "ends"), CASES.values(), ids=CASES.keys())
def test_a_query_notices_loss(tmp_path: Path, stored: int | None, diverged: int | None, epoch: int, ends: bool) -> None:
    checks = Checks(tmp_path, stored)
    checks.diverged = {} if diverged is None else {TP: diverged}

    assert checks.check(view(epoch)) == ends

    is_kept = diverged == 9  # the next start compares with what was read
    assert checks.progress.epochs.seen(TP) == (LogSeen(1, 8) if is_kept else LogSeen(epoch, 12))


def test_the_storage_is_not_asked_while_a_batch_runs(tmp_path: Path) -> None:
    checks = Checks(tmp_path, 7)
    checks.run.batch_started_at = 1.0

    assert not checks.check(view())


def test_brokers_are_asked_once_for_each_report_and_later_when_they_did_not_answer(tmp_path: Path) -> None:
    checks = Checks(tmp_path)
    checks.error = KafkaError("busy")
    first = view()
    checks.check(first)
    checks.check(first)
    assert (checks.questions, checks.progress.epochs.seen(TP)) == (1, LogSeen(1, 8))

    checks.error = None
    checks.check(view())
    assert (checks.questions, checks.progress.epochs.seen(TP)) == (2, LogSeen(1, 12))
