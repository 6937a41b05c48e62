"""The group member, the storage and the agent are real. The coordinator, Spark and other brokers are simulated."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import CoordinatorLoadInProgressError, TopicAuthorizationFailedError

from kctl_agent.errors import StorageError
from kctl_agent.replies.workers import Scope
from kctl_agent.rpc.operations import AcceptedOperation, Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.spark.driver import DriverLost
from kctl_agent.storage.base import OffsetStore
from kctl_agent.storage.chunk import Advance
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.lake.dead_letters.requeue import PutBack
from kctl_agent.worker.consumer_group.membership import Membership
from kctl_agent.worker.lifecycle import query_groups
from kctl_agent.worker.lifecycle.query_groups import SUSPECT_AFTER, Group
from kctl_agent.worker.main_thread import main_loop
from kctl_agent.worker.main_thread.main_loop import Committer, MainLoop
from kctl_agent.worker.offsets.brokers import Bounds
from kctl_agent.worker.offsets.commit_metadata import LogSeen
from kctl_agent.worker.offsets.progress import ReadProgress
from kctl_agent.worker.query.batch_failure import BatchFailure
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.query.run import Run
from kctl_agent.worker.stats import WorkerStats
from tests.lake_tables import TOPIC_ID, opened
from tests.servers.scripted_broker import ScriptedBroker
from tests.unit.worker.coordinator import (
    committed,
    group_script,
    has_settled,
    member_settings,
    rejected,
    scripted_group,
)
from tests.unit.worker.main_thread.played_stats import PlayedStats
from tests.unit.worker.offsets.broker_answers import EVERYTHING, ORDERS_0, ORDERS_1, PAYMENTS_0, TOPICS, Answers
from tests.unit.worker.query.frames import Query
from tests.worker_settings import settings

UNKNOWN_MEMBER, FENCED = 25, 82


class PlayedBrokers(Answers):
    def bounds(self, _: object) -> Bounds:
        return Bounds()

    def found(self, partitions: Any, known: Any = None) -> Any:
        found, unanswered = super().found(partitions, known or {})
        return {tp: replace(each, topic_id=TOPIC_ID) for tp, each in found.items()}, unanswered

    def divergences_of_each(self, *_: object) -> tuple[dict[Any, int], dict[Any, str]]:
        return {}, {}


class PlayedPipeline(Pipeline):
    """Runs queries that read nothing unless a test makes them."""

    folder: Path
    has_driver = True
    put_back: PutBack | None = None

    def connect(self) -> str | None:
        return None if self.has_driver else "the engine is starting"

    def failures(self) -> dict[Group, BatchFailure]:
        if self._runs and not self.has_driver:
            raise DriverLost("the engine has ended")
        return super().failures()

    def start(self, sources: Mapping[TopicPartition, KafkaSource], *, is_careful: bool = False) -> None:
        if not self.has_driver:
            raise DriverLost("the engine has ended")
        run = Run(self.batch_put(self._storage), sources, self.folder / "none", self.on_batch)
        run.query = Query()
        self._runs = {**self._runs, frozenset(sources): run}

    @property
    def session(self) -> Any:
        return object()

    def requeue_put(self) -> Any:
        return self

    def put_next(self, _: object) -> PutBack | None:
        done, self.put_back = self.put_back, None
        return done


class Turning:
    def __init__(
        self, stack: ExitStack, folder: Path, run_dir: Path, answers: dict[str, Any], storage: OffsetStore | None = None
    ) -> None:
        self.broker = stack.enter_context(ScriptedBroker(group_script(answers), topics=TOPICS))
        whole = replace(settings(folder), kafka=member_settings(self.broker.address))
        self.storage: OffsetStore = stack.enter_context(closing(storage or FileStorage(folder / "s.sqlite")))
        self.storage.prepare()
        self.inbox = Inbox()
        server = stack.enter_context(AgentServer(run_dir, "worker-0"))
        self.stats = WorkerStats("worker-0", server, self.storage, self.inbox)
        self.stored: deque[Group] = deque()
        self.pipeline = PlayedPipeline(whole, self.storage, lambda batch: self.stored.append(frozenset(batch.ends)))
        self.pipeline.folder = folder
        brokers: Any = PlayedBrokers(partitions=tuple(sorted(EVERYTHING)))
        self.loop = MainLoop(whole, self.pipeline, brokers, self.storage, self.stats, self.inbox, self.stored)
        stack.callback(self.loop.close)

    def until(self, reached: Callable[[], object], turns: int = 200) -> None:
        for _ in range(turns):
            self.loop.turn()
            if reached():
                return
        raise AssertionError(f"not within {turns} turns; it is {self.stats.state}, with {self.pipeline._runs.keys()}")

    def until_it_reads(self, partitions: Group = EVERYTHING) -> None:
        self.until(
            lambda: (
                self.stats.state == "running"
                and self.pipeline._runs.keys() == {partitions}
                and has_settled(self.broker)
            )
        )

    def reaches(self, ends: dict[TopicPartition, int]) -> None:
        """Simulates batches that store up to these offsets."""
        for group, run in self.pipeline._runs.items():
            reached = {tp: end for tp, end in ends.items() if tp in group}
            for tp, end in reached.items():
                advance = Advance(tp.topic, tp.partition, run.sources[tp].version, run.positions[tp], end)
                self.storage.advance_offsets([advance])
            run.positions = {**run.positions, **reached}
            self.stored.append(group)

    def outage(self) -> tuple[str, str | None] | None:
        found = self.stats._snapshot().worker.waiting_for
        return None if found is None else (found.what, found.reason)

    def events(self) -> list[str]:
        return [event.kind for event in self.stats._snapshot().worker.events]


@pytest.fixture
def turning(tmp_path: Path, short_dir: Path) -> Iterator[Callable[..., Turning]]:
    with ExitStack() as stack:
        yield lambda storage=None, **answers: Turning(
            stack, tmp_path, short_dir, {"OffsetCommit": committed(), **answers}, storage
        )


@pytest.fixture
def worker(turning: Callable[..., Turning]) -> Turning:
    made = turning()
    made.until_it_reads()
    return made


def test_a_worker_that_stops_commits_its_last_batch_and_leaves_the_group(worker: Turning) -> None:
    [run] = worker.pipeline._runs.values()
    worker.reaches({ORDERS_0: 10})
    before = worker.broker.asked.count("OffsetCommit")

    worker.loop.close()

    assert (worker.stats.state, worker.pipeline._runs, run.query.stops) == ("stopping", {}, 1)
    assert worker.broker.asked.count("OffsetCommit") > before
    assert worker.broker.asked[-1] == "LeaveGroup"


def test_a_storage_outage_is_no_records_fault(worker: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_groups, "RETRY_SECONDS", (0.0,))
    for _ in range(2 * SUSPECT_AFTER):
        [run] = worker.pipeline._runs.values()
        run.query.isActive, run.failure = False, BatchFailure("MISCONF", is_storage=True)
        worker.until(lambda: worker.pipeline._runs and run not in worker.pipeline._runs.values())  # noqa: B023
    assert worker.outage() == ("storage", "MISCONF; next try in 0 s")
    assert worker.loop._lifecycle._groups.suspects == frozenset(), "none is read carefully"

    monkeypatch.setattr(main_loop, "GRACE_SECONDS", 0.1)  # a query counts as settled after this time
    worker.reaches({ORDERS_0: 10})
    worker.until(lambda: worker.outage() is None)


def test_idle_workers_requeue(turning: Callable[..., Turning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is paused, or throttled by too many dead letters, requeues those of a table too."""
    lake = opened(tmp_path / "orders")
    worker = turning(lake)
    worker.until_it_reads()
    monkeypatch.setattr(worker.stats, "why_full", {1.0: "1000 dead letters", 0.8: "1000 dead letters"}.get)
    worker.until(lambda: worker.stats.state == "throttled")

    log = Path(lake.dead_letter_table().folder.uri, "_delta_log")
    log.mkdir(parents=True)
    worker.pipeline.put_back = PutBack(3, 2, 1)
    worker.until(lambda: worker.events() == ["throttled", "requeued"])
    worker.inbox.pause([Scope(None, None, "somebody", 0.0)])
    worker.until(lambda: worker.stats.state in ("paused", "throttled") and not worker.pipeline._runs)
    (log / "1.json").touch()
    worker.pipeline.put_back = PutBack(3, 2, 1)
    worker.until(lambda: worker.events()[1:] == ["requeued", "requeued"])


def test_dead_letters_of_a_table_are_left_to_the_worker_that_reads_the_first_partition(
    turning: Callable[..., Turning], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = opened(tmp_path / "orders")
    Path(lake.dead_letter_table().folder.uri, "_delta_log").mkdir(parents=True)
    others = EVERYTHING - {ORDERS_0}
    monkeypatch.setattr(Membership, "partitions", property(lambda _: others))
    worker = turning(lake)
    worker.pipeline.put_back = PutBack(3, 2, 1)

    worker.until_it_reads(others)

    assert worker.pipeline.put_back is not None, "nobody asked for it"


def test_a_half_done_seek_is_unknown(worker: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    init_offsets = worker.storage.init_offsets

    def full_once(*_: object) -> None:
        monkeypatch.setattr(worker.storage, "init_offsets", init_offsets)
        raise StorageError("the disk is full")

    monkeypatch.setattr(worker.storage, "init_offsets", full_once)
    worker.inbox.accept(AcceptedOperation("7", "seek", {"topic": "orders", "partition": 0, "to": "55"}))
    worker.until(lambda: (outcome := worker.inbox.outcome("7")) is not None and outcome.state == "unknown")
    outcome = worker.inbox.outcome("7")
    assert outcome is not None
    assert outcome.text.startswith("the disk is full; the group is reset to 55, and reading continues")


def test_a_worker_that_the_group_has_lost_stops_its_query_and_joins_again(turning: Callable[..., Turning]) -> None:
    codes: dict[str, int] = {}
    worker = turning(OffsetCommit=committed(codes))
    worker.until_it_reads()
    [first] = worker.pipeline._runs.values()
    joined = worker.broker.asked.count("JoinGroup")

    codes |= dict.fromkeys(("orders", "payments"), UNKNOWN_MEMBER)
    worker.reaches({ORDERS_0: 10})
    worker.until(lambda: first.query.stops)
    assert worker.events() == ["lost"]
    codes.clear()
    worker.until(lambda: worker.broker.asked.count("JoinGroup") > joined)
    worker.until_it_reads()


def test_a_lost_seeker_begins_no_query(turning: Callable[..., Turning], monkeypatch: pytest.MonkeyPatch) -> None:
    codes: dict[str, int] = {}
    worker = turning(OffsetCommit=committed(codes))
    worker.until_it_reads()
    worker.until(lambda: worker.loop._progress.commits.is_quiet)  # so that the next commit is the seek's
    codes |= dict.fromkeys(("orders", "payments"), UNKNOWN_MEMBER)
    worker.inbox.accept(AcceptedOperation("7", "seek", {"topic": "orders", "partition": 0, "to": "55"}))
    begun: list[Group] = []
    monkeypatch.setattr(worker.loop._query_start, "start", begun.append)

    worker.loop.turn()

    outcome = worker.inbox.outcome("7")
    assert (outcome and outcome.state) == "failed"
    assert (begun, worker.events()) == ([], ["lost"])


def test_a_pause_outlives_its_turn(turning: Callable[..., Turning], monkeypatch: pytest.MonkeyPatch) -> None:
    worker = turning()
    poll = worker.loop._poll

    def pause_after_the_poll() -> None:
        poll()
        if worker.loop._membership.partitions and worker.inbox.outcome("1") is None:
            worker.inbox.pause([Scope(None, None, "somebody", 0.0)])
            worker.inbox.accept(AcceptedOperation("1", "pause", {}))

    monkeypatch.setattr(worker.loop, "_poll", pause_after_the_poll)
    worker.until(lambda: (outcome := worker.inbox.outcome("1")) is not None and outcome.state == "done")

    assert worker.pipeline._runs == {}


def test_a_drained_batch_is_committed(worker: Turning, monkeypatch: pytest.MonkeyPatch) -> None:
    drain = worker.pipeline.drain

    def drain_behind_a_batch(group: Group | None = None) -> bool:
        worker.reaches({ORDERS_0: 10})
        monkeypatch.undo()
        return drain(group)

    monkeypatch.setattr(worker.pipeline, "drain", drain_behind_a_batch)
    worker.inbox.pause([Scope(None, None, "somebody", 0.0)])
    worker.until(lambda: worker.stats.state == "paused")

    assert worker.loop._progress.commits.known[ORDERS_0] == 10


POSITIONS = {ORDERS_0: 10, ORDERS_1: 20, PAYMENTS_0: 30}
DENIED = committed({"payments": TopicAuthorizationFailedError.errno})


class Commits:
    def __init__(self, broker: ScriptedBroker, member: Membership) -> None:
        self._broker = broker
        self.progress = ReadProgress()
        stats: Any = PlayedStats()
        self.troubles = stats.troubles
        self._committer = Committer(member, self.progress, stats, lambda error, what: f"{what}: {error}")

    def commit(self, now: float, positions: dict[TopicPartition, int] | None = None) -> int:
        before = self._broker.asked.count("OffsetCommit")
        self._committer.commit(POSITIONS if positions is None else positions, now)
        return self._broker.asked.count("OffsetCommit") - before


@contextmanager
def commits(answers: Any = None) -> Iterator[Commits]:
    with scripted_group({"OffsetCommit": answers or committed()}) as (broker, member):
        yield Commits(broker, member)


def test_a_rejected_commit_waits_and_is_an_error_until_it_is_over_while_the_others_are_committed_once() -> None:
    with commits([rejected(CoordinatorLoadInProgressError.errno), *[DENIED] * 3, committed()]) as made:
        assert made.commit(0.0) == 2, "an error of the group is tried again at once"
        assert made.progress.commits.known == {ORDERS_0: 10, ORDERS_1: 20}
        assert made.commit(0.5) == 0, "it is too early"
        assert made.commit(1.5) == 1
        made.commit(13.0)
        text = "the offsets of payments-0 (TopicAuthorizationFailedError) cannot be committed; the other partitions are"
        assert made.troubles == {"commit": (text, None)}

        assert made.commit(30.0) == 1
        assert (made.progress.commits.known, made.troubles) == (POSITIONS, {})
        assert made.commit(60.0) == 0
        assert made.commit(61.0, {**POSITIONS, ORDERS_0: 11}) == 1
        assert made.progress.commits.known == {**POSITIONS, ORDERS_0: 11}


def test_a_position_is_committed_again_when_its_log_is_seen_to_go_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The note named a lower log end. The commit waits until no other has been due for a while."""
    with commits() as made:
        made.progress.epochs.began({ORDERS_0: LogSeen(1, 9)})
        assert made.commit(0.0) == 1
        with monkeypatch.context() as quiet:
            quiet.setattr(type(made.progress.commits), "is_quiet", True)
            assert made.commit(0.1) == 0, "nobody has reported yet that the log goes so far"
        made.progress.epochs.observe({ORDERS_0: LogSeen(1, 10)})
        assert made.commit(0.2) == 0
        monkeypatch.setattr(type(made.progress.commits), "is_quiet", True)

        assert made.commit(2.0) == 1
        assert made.commit(3.0) == 0
