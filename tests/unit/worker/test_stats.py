"""What a worker says of a batch that runs for long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import TopicPartition

from kctl_agent.operations import Inbox
from kctl_agent.server import AgentServer
from kctl_agent.storage.base import Advance, StoredOffset
from kctl_agent.storage.memory import MemoryStorage
from kctl_agent.worker import stats as module
from kctl_agent.worker.brokers import BrokerView
from kctl_agent.worker.stats import Sources, WorkerStats

TP = TopicPartition("t", 0)


@pytest.fixture
def server(short_dir: Path) -> Iterator[AgentServer]:
    with AgentServer(short_dir, "worker-0") as running:
        yield running


def test_a_batch_that_runs_for_long_makes_progress_as_long_as_it_stores_something(
    server: AgentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, started = MemoryStorage(), time.monotonic()
    storage.init_offsets([StoredOffset("t", 0, "A", 5)])
    stats = WorkerStats("worker-0", server, storage, Inbox())
    stats.draw_from(
        Sources(lambda: None, BrokerView, lambda: {TP: 5}, dict, lambda: None, lambda: started if runs else None)
    )

    def progress() -> int:
        return stats._snapshot().work.progress

    runs = True
    before = progress()
    assert progress() == before, "it does not run for long yet"

    monkeypatch.setattr(module, "LONG_BATCH_SECONDS", 0.0)
    first = progress()
    assert progress() == first, "it stores nothing"
    storage.advance_offsets([Advance("t", 0, 1, 5, 9)])
    assert progress() == first + 1
    runs = False
    storage.advance_offsets([Advance("t", 0, 1, 9, 12)])
    assert progress() == first + 1, "what no batch stores is not looked at"
