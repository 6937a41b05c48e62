import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import TopicAuthorizationFailedError
from py4j.protocol import Py4JError

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.file import FileStorage
from kctl_agent.worker.consumer_group.membership import MemberLost
from kctl_agent.worker.lifecycle.machine import Lifecycle, ReportRetry
from kctl_agent.worker.main_thread.query_start import QueryStart
from kctl_agent.worker.offsets.commit_metadata import CommitNote, StorageId
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.query.kafka_source import KafkaSource
from tests.conftest import raising
from tests.unit.worker.coordinator import committed, rejected, scripted_group
from tests.unit.worker.offsets.broker_answers import EVERYTHING, ORDERS_0, ORDERS_1, PAYMENTS_0, Answers, start_offsets

ORDERS = frozenset({ORDERS_0, ORDERS_1})
UNKNOWN_MEMBER = 25


class Started:
    def __init__(
        self, stack: ExitStack, folder: Path, answers: Answers | None = None, commits: Any = None, **settings: str
    ) -> None:
        self.storage = stack.enter_context(closing(FileStorage(folder / "s.sqlite")))
        self.storage.prepare()
        self._broker, member = stack.enter_context(scripted_group({"OffsetCommit": commits or committed()}))
        self.lifecycle, self.progress = Lifecycle(), ReadProgress()
        self.queries: list[dict[Any, KafkaSource]] = []
        self.events: list[str] = []
        self.at_start: list[tuple[int, int]] = []  # offsets that were stored and committed when each query began
        self.fewer: str | None = None
        played = answers or Answers()
        played.partitions = tuple(sorted(EVERYTHING))
        if not played.committed:  # by another client, so the worker has to commit again
            played.committed = dict.fromkeys(EVERYTHING, (40, None))
        pipeline: Any = SimpleNamespace(start=self._begin, limit_kept_consumers=lambda _: self.fewer)
        stats: Any = SimpleNamespace(happened=lambda kind, *_: self.events.append(kind))
        offsets = start_offsets(self.storage, played, **settings)
        self.pipeline = pipeline
        self.start = QueryStart(
            self.lifecycle, pipeline, offsets, member, self.progress, stats, lambda error, what: f"{what}: {error}"
        ).start

    def _begin(self, sources: dict[Any, KafkaSource], *, is_careful: bool) -> None:
        self.queries.append(sources)
        stored = self.storage.stored_offsets([tuple(tp) for tp in sources])
        self.at_start.append((len(stored), self._broker.asked.count("OffsetCommit")))

    def failure(self) -> ReportRetry:
        (report,) = self.start(ORDERS)
        assert isinstance(report, ReportRetry)
        return report


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    with ExitStack() as stack:
        yield partial(Started, stack, tmp_path)


def test_offsets_are_stored_and_committed_before_anything_is_read(starting: Callable[..., Started]) -> None:
    begun = starting()
    begun.fewer = "of 1,000 consumers 64 are kept"

    begun.start(ORDERS)

    assert begun.events == ["consumers_not_kept"]
    assert begun.lifecycle.reading == ORDERS
    assert [set(sources) for sources in begun.queries] == [ORDERS]
    assert begun.at_start == [(2, 1)]
    assert begun.progress.commits.known == {ORDERS_0: 40, ORDERS_1: 40}


def test_what_no_leader_answers_for_is_not_read_and_the_others_are(starting: Callable[..., Started]) -> None:
    begun = starting(Answers(unanswered={ORDERS_1: "no leader"}))

    begun.start(ORDERS)

    assert begun.lifecycle.reading == {ORDERS_0}
    assert begun.lifecycle.left_out(0.0, time.monotonic()) == {ORDERS_1: "no leader"}
    assert [set(sources) for sources in begun.queries] == [{ORDERS_0}]


def test_what_may_not_be_committed_is_not_read_and_the_others_are(starting: Callable[..., Started]) -> None:
    codes = dict.fromkeys(("orders", "payments"), TopicAuthorizationFailedError.errno)
    begun = starting(commits=committed(codes))
    assert begun.failure().why.startswith("cannot begin to read orders: ")
    assert begun.queries == []

    del codes["orders"]
    begun.start(EVERYTHING)

    assert begun.lifecycle.reading == ORDERS
    assert "TopicAuthorizationFailedError" in begun.lifecycle.left_out(0.0, time.monotonic())[PAYMENTS_0]


def test_outages_at_a_start_differ_from_bugs(starting: Callable[..., Started], monkeypatch: pytest.MonkeyPatch) -> None:
    begun = starting()
    with monkeypatch.context() as patched:
        patched.setattr(begun.storage, "stored_offsets", raising(StorageUnusable("read-only")))
        assert begun.failure() == ReportRetry("cannot begin to read orders: read-only", 1, 1.0, "storage")
        assert begun.queries == []
    full = "cannot begin to read orders: [Errno 28] No space left on device"
    monkeypatch.setattr(begun.pipeline, "start", raising(OSError(28, "No space left on device")))
    assert begun.failure() == ReportRetry(full, 2, 2.0, "disk")
    monkeypatch.setattr(begun.pipeline, "start", raising(Py4JError("cluster\n\tat Java")))
    assert begun.failure() == ReportRetry("cannot begin to read orders: cluster", 3, 5.0)
    monkeypatch.setattr(begun.pipeline, "start", raising(KeyError("bug")))
    with pytest.raises(KeyError):
        begun.start(ORDERS)


def test_a_member_that_the_group_has_lost_begins_nothing(starting: Callable[..., Started]) -> None:
    begun = starting(commits=rejected(UNKNOWN_MEMBER))

    with pytest.raises(MemberLost):
        begun.start(ORDERS)

    assert begun.queries == []


def test_a_moved_offset_is_reported_once_though_its_first_commit_fails(starting: Callable[..., Started]) -> None:
    theirs = CommitNote(StorageId("other", "host:file:/other.sqlite"), "A")
    codes = dict.fromkeys(("orders", "payments"), TopicAuthorizationFailedError.errno)
    begun = starting(
        Answers(committed=dict.fromkeys(EVERYTHING, (40, theirs))), committed(codes), on_other_storage="take_over"
    )

    begun.failure()
    codes.clear()
    begun.start(ORDERS)
    assert begun.lifecycle.reading == ORDERS

    assert begun.events == ["other_storage", "other_storage"], "one for each partition"
