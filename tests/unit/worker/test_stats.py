import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition

from kctl_agent.errors import StorageError
from kctl_agent.message import Message
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.partitions import MemberReply
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.storage.chunk import Advance, StoredOffset
from kctl_agent.worker import stats as module
from kctl_agent.worker.offsets.brokers import BrokerView
from kctl_agent.worker.query.run import Batch
from kctl_agent.worker.stats import Sources, WorkerStats
from tests.conformance.given import fill, settle_dead
from tests.conftest import eventually, raising
from tests.scratch_storage import ScratchStorage

TP = TopicPartition("t", 0)


@pytest.fixture
def server(short_dir: Path) -> Iterator[AgentServer]:
    with AgentServer(short_dir, "worker-0") as running:
        yield running


def sources(view: BrokerView, position: int, committed: int) -> Sources:
    parts: dict[str, Any] = {
        "member": SimpleNamespace(info=MemberReply(), partitions=frozenset({TP})),
        "watcher": SimpleNamespace(view=view),
        "pipeline": SimpleNamespace(positions={TP: position}, query_id=None, batch_started_at=None),
        "progress": SimpleNamespace(
            positions=lambda _assigned, running, _view: running, committed=lambda _: {TP: committed}
        ),
    }
    return Sources(**parts)


def test_a_partition_is_left_out_and_taken_in_with_one_event_each(server: AgentServer) -> None:
    stats = WorkerStats("worker-0", server, ScratchStorage(), Inbox())
    other = TopicPartition("t", 1)
    for reasons in ({}, {other: "no leader", TP: "no leader"}, {other: "no leader", TP: "no leader"}, {}):
        stats.leaves_out(reasons)

    assert [(each.kind, each.partition) for each in stats._events] == [
        ("partition_left_out", 0),
        ("partition_left_out", 1),
        ("partition_taken_in", 0),
        ("partition_taken_in", 1),
    ]
    assert stats._events[0].text == "t-0 is not read: no leader; the other partitions are read"


def test_a_long_batch_makes_progress_while_it_stores(server: AgentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, started = ScratchStorage(), time.monotonic()
    storage.init_offsets([StoredOffset("t", 0, "A", 5)])
    stats = WorkerStats("worker-0", server, storage, Inbox())
    batch = sources(BrokerView(), 5, 5)
    stats.sources = batch

    def progress() -> int:
        stats._count()
        return stats._snapshot().progress

    batch.pipeline.batch_started_at = started  # type: ignore[misc]
    before = progress()
    assert progress() == before, "it does not run for long yet"

    monkeypatch.setattr(module, "LONG_BATCH_SECONDS", 0.0)
    first = progress()
    assert progress() == first, "it stores nothing"
    storage.advance_offsets([Advance("t", 0, 1, 5, 9)])
    assert progress() == first + 1
    batch.pipeline.batch_started_at = None  # type: ignore[misc]
    storage.advance_offsets([Advance("t", 0, 1, 9, 12)])
    assert progress() == first + 1, "what no batch stores is not counted"


@pytest.mark.parametrize(("asked_seconds_ago", "end"), [(1.0, 137), (-1.0, 130)])
def test_ends_include_what_was_read_and_times_add_up(server: AgentServer, asked_seconds_ago: float, end: int) -> None:
    stats = WorkerStats("worker-0", server, ScratchStorage(), Inbox())
    view = BrokerView(ends={TP: 130}, taken_at=time.monotonic() - asked_seconds_ago)
    stats.sources = sources(view, 137, 131)
    for number, seconds in enumerate((0.5, 0.25)):
        stats.batch(Batch(number, 7, seconds, {}, {}))

    [row] = stats._snapshot().partitions

    assert (row.committed, row.position, row.end) == (131, 137, end)
    assert stats._snapshot().worker.batch_seconds_total == 0.75


def test_partitions_have_counts_and_ages(server: AgentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = ScratchStorage(block_messages=10)
    stats = WorkerStats("worker-0", server, storage, Inbox())
    stats.sources = sources(BrokerView(), 5, 5)
    now = time.time()

    def row() -> tuple[int | None, float]:
        stats._count()
        [found] = stats._snapshot().partitions
        return found.stored_messages, round(found.stored_seconds or 0.0)

    assert stats._snapshot().partitions[0].stored_messages is None, "it was not counted yet"
    assert row() == (0, 0)
    fill(storage, 20)
    fill(storage, 30, partition=1)
    monkeypatch.setattr(storage.clock, "wall", lambda: now + 75.0)
    assert row() == (20, 75)
    [claim] = storage.claim("sinker-0", 10, 60.0)
    storage.settle(claim, [True] * 9 + [False], retry_seconds=3600.0)
    assert row() == (11, 75), "a message that waits for its next try is as old as before"
    [claim] = storage.claim("sinker-0", 10, 60.0)
    assert row() == (11, 75), "messages in a handler count"
    settle_dead(storage, claim)
    storage.clear()
    assert row() == (0, 0), "dead letters do not count"
    storage.requeue_dead()
    assert row() == (10, 0), "a requeued dead letter counts from when it was requeued"


def test_stats_that_fail_are_the_last_error_and_grow_old(server: AgentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, published = WorkerStats("worker-0", server, ScratchStorage(), Inbox()), list[Snapshot]()
    snapshot = stats._snapshot
    monkeypatch.setattr(server, "publish", published.append)
    stats.start()
    try:
        monkeypatch.setattr(stats, "_snapshot", raising(KeyError("state")))
        eventually(lambda: published and published[-1].worker.last_error)
        assert published[-1].worker.last_error == "its stats cannot be collected: KeyError: 'state'"
        age_at = published[-1].published_at
        count = len(published)
        eventually(lambda: len(published) > count)
        assert published[-1].published_at == age_at, "it does not pass for a new one"
        monkeypatch.setattr(stats, "_snapshot", snapshot)
        eventually(lambda: published[-1].worker.last_error is None)
    finally:
        stats.close()


@pytest.fixture
def dying(server: AgentServer) -> tuple[WorkerStats, ScratchStorage]:
    storage = ScratchStorage()
    fill(storage, 3)
    for claim in storage.claim("sinker-0", 10, 60.0):
        settle_dead(storage, claim)
    return WorkerStats("worker-0", server, storage, Inbox()), storage


def counted(stats: WorkerStats) -> StorageReply:
    stats._count()
    assert stats._stored is not None
    return stats._stored


def test_recent_letters_get_older(dying: tuple[WorkerStats, ScratchStorage], monkeypatch: pytest.MonkeyPatch) -> None:
    stats, storage = dying
    assert counted(stats).recent_dead is None, "the count comes first"
    recent = counted(stats).recent_dead
    assert recent is not None
    assert recent.count == 3
    assert 0.0 <= (recent.last_seconds or 0.0) < 60.0

    stats._recent_dead_at -= 20.0
    older = counted(stats).recent_dead
    assert older is not None
    assert 20.0 <= (older.last_seconds or 0.0) < 80.0

    now = time.time()
    for seconds in (-3600.0, 301.0):
        monkeypatch.setattr(storage.clock, "wall", lambda ago=seconds: now + ago)
        assert storage.recent_dead() is None

    stats._recent_dead_at = stats._read_dead_at = 0.0
    counted(stats)
    assert counted(stats).recent_dead is None, "they are read again although `dead` is the same"


@pytest.mark.shows("a storage whose recent dead letters cannot be read in time is counted all the same")
def test_unread_letters_still_count(dying: tuple[WorkerStats, ScratchStorage], monkeypatch: pytest.MonkeyPatch) -> None:
    stats, storage = dying
    known: list[int | None] = []

    def refuse() -> None:
        assert stats._stored is not None
        known.append(stats._stored.dead)
        raise StorageError("not in time")

    monkeypatch.setattr(storage, "recent_dead", refuse)
    for _ in range(3):
        assert (counted(stats).dead, counted(stats).error) == (3, None)

    assert known == [3], "counted before, and not read again soon"


def test_of_many_reasons_only_the_newest_are_read(dying: tuple[WorkerStats, ScratchStorage]) -> None:
    _, storage = dying
    read: list[int] = []
    real = storage._read_dead
    storage._read_dead = lambda numbers: real(numbers) if not read.append(len(numbers)) else ()  # type: ignore[method-assign,func-returns-value]
    storage.dead_letter(
        [Message("t", 1, offset, None, b"", 0, (), 1) for offset in range(1000)],
        [f"Error{number}: no" for number in range(1000)],
    )

    recent = storage.recent_dead()

    assert recent is not None
    assert (recent.count, read) == (1003, [20])
