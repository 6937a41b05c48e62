import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError

from kctl_agent.errors import BadParams
from kctl_agent.replies.workers import Scope
from kctl_agent.rpc.operations import AcceptedOperation, Inbox
from kctl_agent.worker.lifecycle.machine import Action, Commit, Drain, Enter, Lifecycle, StartQuery, StopQuery
from kctl_agent.worker.main_thread.requests import Requests
from kctl_agent.worker.offsets.positions import SeekPlan

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
AB = frozenset({A, B})
SEEK = AcceptedOperation("1", "seek", {"topic": "t", "partition": 0, "to": "earliest"})


class Worker:
    def __init__(self) -> None:
        self.inbox = Inbox()
        self.lifecycle = Lifecycle()
        self.actions: list[Action] = []
        self.moved: list[SeekPlan] = []
        self.position = 40
        self.error: Exception | None = None
        self.before_move: Callable[[], object] = lambda: None
        seeking: Any = SimpleNamespace(plan=self._plan, position=lambda *_: self.position, move=self._move)
        membership: Any = SimpleNamespace(partitions=AB)
        self.requests = Requests(
            "worker-0",
            self.inbox,
            membership,
            self.lifecycle,
            seeking,
            self.perform,
            lambda: self.perform(self.lifecycle.lost()),
            lambda error, what: f"{what}: {type(error).__name__}",
        )
        self.lifecycle.polled(AB)
        self.lifecycle.tick(0.0)
        self.lifecycle.start_due(0.0)
        self.lifecycle.query_started(AB, {}, 0.0)

    def perform(self, actions: Iterable[Action]) -> None:
        self.actions += actions

    def turn(self) -> None:
        self.actions = []
        self.requests.carry_out()

    def outcome(self, id_: str = "1") -> tuple[str, str]:
        outcome = self.inbox.outcome(id_)
        assert outcome is not None
        return outcome.state, outcome.text

    def _plan(self, _tp: TopicPartition, to: str) -> tuple[None, SeekPlan]:
        if to != "earliest":
            raise BadParams("a seek goes to earliest")
        return None, SeekPlan("t", 0, self.position, 0)

    def _move(self, tp: TopicPartition, _found: None, plan: SeekPlan) -> None:
        assert tp == A
        self.before_move()
        if self.error is not None:
            raise self.error
        self.moved.append(plan)


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_seek_waits_for_the_running_batch_and_begins_where_that_has_ended(worker: Worker) -> None:
    worker.inbox.accept(SEEK)
    worker.inbox.accept(AcceptedOperation("2", "seek", {**SEEK.params, "dry_run": True}))
    worker.turn()
    assert (worker.outcome()[0], worker.actions) == ("waiting", [Drain(AB)])
    assert worker.outcome("2")[0] == "waiting", "operations are carried out one after another"

    worker.lifecycle.drained(AB)
    worker.position = 55
    worker.turn()

    assert worker.outcome() == ("done", "t-0: from 55 back to 0; 55 offsets are handled again")
    assert worker.actions == [Drain(AB), Commit(AB), StopQuery()], "all queries, before the offset is moved"
    assert worker.moved == [SeekPlan("t", 0, 55, 0)]
    assert (worker.lifecycle.queries, worker.lifecycle.is_seeking) == ({}, False)
    assert worker.outcome("2")[0] == "done"


@pytest.mark.parametrize(
    ("params", "outcome"),
    [
        ({"partition": 7}, ("failed", "worker-0 does not own t-7 now")),
        ({"to": "never"}, ("failed", "a seek goes to earliest")),
        ({"dry_run": True}, ("done", "t-0: from 40 back to 0; 40 offsets are handled again")),
    ],
)
def test_bad_seeks_and_dry_runs_stop_nothing(worker: Worker, params: dict[str, Any], outcome: tuple[str, str]) -> None:
    worker.inbox.accept(AcceptedOperation("1", "seek", {**SEEK.params, **params}))
    worker.turn()

    assert (worker.outcome(), worker.actions, worker.moved) == (outcome, [], [])
    assert not worker.lifecycle.is_seeking


def test_a_seek_that_fails_lets_the_queries_begin_again(worker: Worker) -> None:
    worker.error = KafkaError("gone")
    worker.inbox.accept(SEEK)
    worker.turn()
    worker.lifecycle.drained(AB)
    worker.turn()

    assert worker.outcome() == ("failed", "seek failed: KafkaError")
    assert (worker.lifecycle.is_seeking, worker.lifecycle.queries) == (False, {})
    worker.lifecycle.tick(0.0)
    assert worker.lifecycle.start_due(0.0), "a query is started"


def expire(worker: Worker) -> None:
    worker.requests._waiting[0] = replace(SEEK, until=time.monotonic())


@pytest.mark.parametrize(
    ("drop", "why"), [(lambda worker: worker.inbox.cancel("1"), "was cancelled"), (expire, "was not begun in time")]
)
def test_a_seek_dropped_while_waiting_moves_nothing(worker: Worker, drop: Callable[[Worker], object], why: str) -> None:
    worker.inbox.accept(SEEK)
    worker.turn()
    drop(worker)
    worker.turn()
    assert (worker.outcome(), worker.lifecycle.is_seeking) == (("failed", why), False)

    lifecycle, seen = worker.lifecycle, list[Action]()
    for actions in (lifecycle.tick(0.0), lifecycle.drained(AB), lifecycle.tick(0.0), lifecycle.start_due(0.0)):
        seen += actions
        worker.requests.carry_out()

    kinds = [type(each) for each in seen if not isinstance(each, Enter)]
    assert kinds == [Drain, Commit, StopQuery, StartQuery]
    assert (worker.moved, worker.outcome()) == ([], ("failed", why))


def test_what_has_begun_cannot_be_cancelled_and_what_never_came_will_not_be_taken(worker: Worker) -> None:
    worker.inbox.accept(SEEK)
    worker.turn()
    worker.lifecycle.drained(AB)
    answered = []
    worker.before_move = lambda: answered.append(worker.inbox.cancel("1").state)
    worker.turn()
    assert (answered, worker.outcome()[0]) == (["running"], "done")

    assert worker.inbox.cancel("2").state == "unknown"
    worker.inbox.accept(replace(SEEK, id="2"), lambda: pytest.fail("it is carried out"))
    worker.inbox.accept(replace(SEEK, id="3", until=time.monotonic()), lambda: pytest.fail("it is carried out"))
    worker.turn()
    assert len(worker.moved) == 1
    assert [outcome.text for outcome in map(worker.inbox.outcome, "23") if outcome is not None] == [
        "was cancelled",
        "was not begun in time",
    ]


def test_a_pause_is_done_when_nothing_of_it_is_read_any_more(worker: Worker) -> None:
    worker.inbox.pause([Scope("t", 1, "somebody", 0.0)])
    worker.inbox.accept(AcceptedOperation("1", "pause", {}))
    worker.turn()
    assert worker.outcome()[0] == "waiting"
    assert not worker.lifecycle.is_seeking, "queries are started and stopped meanwhile"

    worker.lifecycle.paused(frozenset({B}))
    worker.lifecycle.tick(0.0)
    worker.lifecycle.drained(AB)
    worker.turn()

    assert worker.outcome() == ("done", "paused t-1")
