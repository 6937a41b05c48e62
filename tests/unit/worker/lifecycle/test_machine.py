from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from kafka import TopicPartition

from kctl_agent.replies.workers import Outside, UnreadPartition
from kctl_agent.worker.lifecycle.machine import (
    Action,
    Commit,
    Drain,
    Enter,
    Lifecycle,
    LogsObserved,
    Phase,
    ReportEvent,
    ReportQueryFailed,
    ReportRetry,
    StartQuery,
    StopQuery,
    Throttle,
)
from kctl_agent.worker.lifecycle.machine import WorkerState as S

PARTITIONS = [TopicPartition("t", number) for number in range(4)]
A, B, C, D = PARTITIONS
AB = frozenset({A, B})
NONE: frozenset[TopicPartition] = frozenset()
LOST = ReportEvent("lost", "the group continued without this worker; the worker joins again")

Event = Callable[[Lifecycle, float], list[Action]]


def event(method: Callable[..., list[Action] | None], *, is_timed: bool = False) -> Callable[..., Event]:
    return lambda *arguments: lambda lifecycle, now: method(lifecycle, *arguments, *([now] if is_timed else [])) or []


def start_failed(lifecycle: Lifecycle, group: frozenset[TopicPartition], why: str, *more: Any) -> list[Action]:
    *outside, now = more
    return lifecycle.start_failed(group, why, outside[0] if outside else None, now)


Polled = event(Lifecycle.polled)
Rebalancing = event(lambda lifecycle: lifecycle.polled(NONE, is_rebalancing=True))
Paused, Revoked = event(Lifecycle.paused), event(Lifecycle.revoked)
Lost, Fenced = event(Lifecycle.lost), event(Lifecycle.fenced)
StorageCounted, BatchStored = event(Lifecycle.storage_counted), event(Lifecycle.batch_stored)
QueryStarted, StartFailed = event(Lifecycle.query_started, is_timed=True), event(start_failed, is_timed=True)
QueryFailed, DriverEnded = event(Lifecycle.query_failed), event(Lifecycle.driver_ended)
Draining, Drained = event(Lifecycle.draining), event(Lifecycle.drained)
SeekRequested, SeekBegun = event(Lifecycle.seek_requested), event(Lifecycle.seek_begun)
SeekEnded, StopRequested = event(Lifecycle.seek_ended), event(Lifecycle.stop_requested)
Tick, StartDue = event(Lifecycle.tick, is_timed=True), event(Lifecycle.start_due, is_timed=True)


def observed(**found: Any) -> Event:
    return event(Lifecycle.logs_observed)(LogsObserved(**found))


JOINED: list[Event] = [Polled(AB), Tick(), StartDue()]
READS: list[Event] = [*JOINED, QueryStarted(AB, {})]
FULL, ROOM = StorageCounted("800 of 800 messages", "800 of 800 messages"), StorageCounted(None, None)
HALF_FULL = StorageCounted(None, "700 of 800 messages")


def run(
    events: Sequence[Event], lifecycle: Lifecycle | None = None, now: float = 100.0
) -> tuple[Lifecycle, list[Action]]:
    lifecycle, actions = lifecycle or Lifecycle(), list[Action]()
    for event in events:
        actions = event(lifecycle, now)
    return lifecycle, actions


@pytest.mark.shows("no sequence of events causes two queries for a partition or a commit after revocation")
@pytest.mark.parametrize(
    ("events", "state", "actions"),
    [
        ([Polled(NONE)], S.JOINING, [Commit(NONE)]),
        ([Polled(NONE), Tick()], S.JOINING, []),
        ([Polled(NONE), Tick(), StartDue()], S.JOINING, []),
        ([Polled(AB), Tick()], S.JOINING, []),
        (JOINED, S.ASSIGNED, [Enter(S.ASSIGNED), StartQuery(AB)]),
        (READS, S.RUNNING, [Commit(AB), Enter(S.RUNNING)]),
        ([*READS, Polled(AB)], S.RUNNING, [Commit(AB)]),
        ([*READS, Tick()], S.RUNNING, []),
        ([*READS, Tick(), StartDue()], S.RUNNING, []),
        # a failed start is retried later
        ([*JOINED, StartFailed(AB, "no broker", "brokers")], S.ASSIGNED,
         [ReportRetry("no broker", 1, 1.0, "brokers")]),
        ([*JOINED, StartFailed(AB, "no broker"), Tick(), StartDue()], S.ASSIGNED, []),
        # the group
        ([Rebalancing()], S.REBALANCING, [Enter(S.REBALANCING)]),
        ([*READS, Revoked(AB)], S.REBALANCING, [Enter(S.REBALANCING), StopQuery(is_waited_for=True)]),
        ([*READS, Revoked(NONE)], S.RUNNING, []),
        ([*READS, Rebalancing(), Polled(AB), Tick(), StartDue()], S.RUNNING,
         [Enter(S.RUNNING)]),
        ([*READS, Revoked(AB), Polled(AB)], S.REBALANCING, [Commit(NONE)]),
        ([*READS, Lost()], S.RUNNING, [LOST, StopQuery()]),
        ([*READS, Lost(), Tick(), StartDue()], S.RUNNING, []),
        ([*READS, Fenced("by worker-1")], S.RUNNING, [ReportEvent("fenced", "by worker-1"), StopQuery()]),
        # other partitions than before
        ([*READS, Polled(frozenset({A})), Tick()], S.RUNNING, [Drain(AB)]),
        ([*READS, Polled(frozenset({A})), Tick(), Drained(AB)], S.RUNNING, [Commit(frozenset({A})), StopQuery(AB)]),
        ([*READS, Polled(frozenset({A})), Tick(), Tick()], S.RUNNING, [Drain(AB)]),
        ([*READS, Drained(frozenset({C}))], S.RUNNING, []),
        # paused
        ([Polled(AB), Paused(AB), Tick(), StartDue()], S.PAUSED, [Enter(S.PAUSED)]),
        ([Polled(AB), Paused(frozenset({A})), Tick(), StartDue()], S.ASSIGNED,
         [Enter(S.ASSIGNED), StartQuery(frozenset({B}))]),
        ([*READS, Polled(AB), Paused(AB), Tick()], S.RUNNING, [Drain(AB)]),
        ([*READS, Polled(AB), Paused(AB), Tick(), Drained(AB), StartDue()], S.PAUSED, [Enter(S.PAUSED)]),
        # throttled
        ([Polled(AB), FULL, Tick(), StartDue()], S.THROTTLED,
         [Enter(S.THROTTLED), ReportEvent("throttled", "takes no new batch: 800 of 800 messages"),
          Throttle("800 of 800 messages")]),
        ([*READS, FULL, Tick()], S.THROTTLED,
         [Enter(S.THROTTLED), ReportEvent("throttled", "takes no new batch: 800 of 800 messages"),
          Throttle("800 of 800 messages"), Drain(AB)]),
        ([*READS, HALF_FULL, Tick()], S.RUNNING, []),
        ([*READS, FULL, Tick(), Drained(AB), HALF_FULL, Tick(), StartDue()], S.THROTTLED,
         [Throttle("700 of 800 messages")]),
        ([*READS, FULL, Tick(), Drained(AB), ROOM, Tick(), StartDue()], S.ASSIGNED,
         [Throttle(None), Enter(S.ASSIGNED), StartQuery(AB)]),
        # reports of the brokers
        ([*READS, observed(is_recreated=True), Tick()], S.RUNNING, [Drain(AB)]),
        ([*READS, observed(is_leaderless=True), Tick()], S.RUNNING, [Drain(AB)]),
        ([*READS, observed(is_leaderless=True, is_hopeless=True), Tick()], S.RUNNING, [StopQuery(AB)]),
        # a query that closed its own gate, or that failed
        ([*READS, Draining(frozenset({AB})), Tick()], S.RUNNING, [Drain(AB)]),
        ([*READS, QueryFailed(AB, "no number", None), Tick()], S.ASSIGNED,
         [StopQuery(AB), Enter(S.ASSIGNED), ReportRetry("no number", 1, 1.0),
          ReportQueryFailed("no number", is_first=True)]),
        ([*READS, QueryFailed(AB, "no number", None), Tick(), StartDue()], S.ASSIGNED, []),
        ([*READS, Draining(frozenset({AB})), QueryFailed(AB, "no number", None), Tick()], S.RUNNING, [Drain(AB)]),
        # a driver that ended with all queries
        ([*READS, DriverEnded("no engine")], S.ASSIGNED,
         [ReportEvent("engine_lost", "no engine"), StopQuery(), Enter(S.ASSIGNED)]),
        ([*READS, DriverEnded("no engine"), Tick(), StartDue()], S.ASSIGNED, [StartQuery(AB)]),
        ([*JOINED, DriverEnded("no engine")], S.ASSIGNED, [ReportEvent("engine_lost", "no engine")]),
        ([*READS, StopRequested(), DriverEnded("no engine")], S.STOPPING,
         [ReportEvent("engine_lost", "no engine"), StopQuery()]),
        # a seek
        ([*READS, SeekRequested()], S.RUNNING, [Drain(AB)]),
        ([*READS, SeekRequested(), Drained(AB)], S.RUNNING, []),
        ([*READS, SeekRequested(), Drained(AB), Tick()], S.RUNNING, []),
        ([*READS, SeekRequested(), Drained(AB), SeekBegun()], S.RUNNING, [Commit(AB), StopQuery()]),
        ([*READS, SeekRequested(), Drained(AB), SeekBegun(), StartDue()], S.RUNNING, []),
        ([*READS, SeekRequested(), Drained(AB), SeekEnded(), Tick()], S.RUNNING, [Drain(AB)]),
        ([*READS, SeekRequested(), Drained(AB), SeekBegun(), SeekEnded(), Tick(), StartDue()], S.ASSIGNED,
         [Enter(S.ASSIGNED), StartQuery(AB)]),
        # the end
        ([*READS, StopRequested()], S.STOPPING, [Enter(S.STOPPING)]),
        ([*READS, StopRequested(), Revoked(AB)], S.STOPPING, [StopQuery(is_waited_for=True)]),
        ([*JOINED, StopRequested(), Tick(), StartDue()], S.STOPPING, []),
        ([*READS, StopRequested(), StopRequested()], S.STOPPING, []),
    ],
)  # fmt: skip
def test_each_event_leads_where_the_table_shows(events: list[Event], state: S, actions: list[Action]) -> None:
    lifecycle, last = run(events)

    assert (lifecycle.state, last) == (state, actions)


def test_a_batch_that_is_stored_forgives_the_failed_starts_before_it() -> None:
    tired, _ = run([*JOINED, StartFailed(AB, "no broker", "brokers"), StartFailed(AB, "no broker", "brokers")])
    assert run([StartFailed(AB, "no", "brokers")], tired)[1] == [ReportRetry("no", 3, 5.0, "brokers")]

    assert run([BatchStored(AB), StartFailed(AB, "no")], tired)[1] == [ReportRetry("no", 1, 1.0)]


def test_a_failing_querys_partitions_are_read_carefully_and_streamed_but_for_the_bad_one() -> None:
    lifecycle, _ = run(READS)
    run([QueryFailed(AB, "no number", None), Tick(), Tick(), StartDue(), QueryStarted(AB, {})], lifecycle, now=101.0)
    failed = run([QueryFailed(AB, "no number", None), Tick()], lifecycle, now=103.0)[1]
    assert ReportRetry("no number", 2, 0.0) in failed
    assert run([Tick(), StartDue()], lifecycle, now=103.0)[1] == [StartQuery(AB, is_careful=True)]

    unreadable = UnreadPartition("t", 0, "no number", 17)
    lifecycle.query_started(AB, {}, 103.0)
    lifecycle.read_carefully(frozenset({B}), {A: unreadable})
    assert run([Tick(), Drained(AB), StartDue()], lifecycle, now=104.0)[1][-1] == StartQuery(frozenset({B}))
    lifecycle.query_started(frozenset({B}), {}, 104.0)
    assert run([Tick(), StartDue()], lifecycle, now=105.0)[1] == [StartQuery(frozenset({A}), is_careful=True)]
    assert lifecycle.isolated() == {A: unreadable}

    lifecycle.read_carefully(AB, {A: unreadable})
    assert lifecycle.isolated() == {}


@pytest.mark.parametrize("gone", [Lost(), Revoked(AB), Fenced("by worker-1")])
def test_no_query_begins_on_partitions_that_were_lost_in_the_same_turn(gone: Event) -> None:
    assert run([Polled(AB), Tick(), gone, StartDue()])[1] == []


def test_an_offset_is_not_moved_while_the_group_rebalances() -> None:
    assert run([*READS, SeekRequested(), Drained(AB)])[0].is_drained
    assert run([Polled(AB), SeekRequested()])[0].is_drained
    assert not run([*READS, SeekRequested()])[0].is_drained
    assert not run([*READS, Revoked(AB), SeekRequested()])[0].is_drained


partitions = st.frozensets(st.sampled_from(PARTITIONS))


class World(RuleBasedStateMachine):
    """Brokers, Spark, a storage and an operator that behave arbitrarily, around a real lifecycle."""

    def __init__(self) -> None:
        super().__init__()
        self.lifecycle = Lifecycle()
        self.now = 1000.0
        self.assigned = self.paused = NONE
        self.has_room = True
        self.is_hopeless = self.is_stopping = False
        self.queries: dict[frozenset[TopicPartition], bool] = {}  # each query, and whether it is running a batch
        self.starting: frozenset[TopicPartition] | None = None
        self.may_abandon = False
        self.handle(Polled(NONE))

    def handle(self, event: Event) -> None:
        for action in event(self.lifecycle, self.now):
            self.carry_out(action)

    def carry_out(self, action: Action) -> None:
        match action:
            case StartQuery(group):
                assert group, "a query over nothing"
                assert self.starting is None
                assert not any(group & other for other in self.queries), "two queries over one partition"
                assert group <= self.assigned - self.paused, "what is not assigned, or paused, is read"
                assert self.has_room, "a batch into a full storage"
                assert not self.lifecycle.is_seeking, "a query while an offset is moved"
                assert not self.is_stopping, "a query of a worker that stops"
                self.starting = group
            case Drain(group):
                if not self.queries[group]:
                    self.handle(Drained(group))
            case StopQuery(None, is_waited_for):
                assert is_waited_for or self.may_abandon or not any(self.queries.values()), "batches are abandoned"
                self.queries = {}
            case StopQuery(group):
                assert group is not None
                assert self.is_hopeless or not self.queries[group], "a batch is abandoned"
                del self.queries[group]
            case Commit(committed):
                assert committed <= self.assigned, "what was revoked is committed"
                assert committed <= NONE.union(*self.queries), "what nobody reads is committed"
            case _:
                pass

    def start(self, answer: Event, read: frozenset[TopicPartition] = NONE) -> None:
        self.starting = None
        if read:
            self.queries[read] = False
        self.handle(answer)

    @precondition(lambda self: self.starting is not None)
    @rule(without=partitions)
    def a_query_starts(self, without: frozenset[TopicPartition]) -> None:
        assert self.starting is not None
        wanted = self.starting
        if read := wanted - without:
            self.start(QueryStarted(read, dict.fromkeys(wanted & without, "no leader")), read)
        else:
            self.start(StartFailed(wanted, "no leader"))

    @precondition(lambda self: self.starting is not None)
    @rule()
    def a_query_cannot_be_started(self) -> None:
        assert self.starting is not None
        self.start(StartFailed(self.starting, "no broker", "brokers"))

    @rule()
    def the_driver_ends(self) -> None:
        self.queries = dict.fromkeys(self.queries, False)
        self.start(DriverEnded("no engine"))
        assert not self.lifecycle.queries

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 31.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.starting is None and not self.is_stopping)
    @rule(paused=partitions)
    def the_group_is_polled(self, paused: frozenset[TopicPartition]) -> None:
        self.paused = paused & self.assigned
        self.handle(Polled(self.assigned))
        self.handle(Paused(self.paused))

    @precondition(lambda self: self.starting is None and not self.is_stopping)
    @rule(revoked=partitions)
    def partitions_are_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        revoked &= self.assigned
        self.handle(Revoked(revoked))
        self.assigned -= revoked
        assert not revoked or not self.queries, "what another member reads from now on is still read"

    @precondition(lambda self: self.starting is None and not self.is_stopping)
    @rule(more=partitions)
    def partitions_are_assigned(self, more: frozenset[TopicPartition]) -> None:
        self.handle(Rebalancing())
        self.assigned |= more
        self.paused = NONE
        self.handle(Polled(self.assigned))
        self.handle(Paused(NONE))

    @rule()
    def the_session_expires(self) -> None:
        self.may_abandon = True
        self.starting, self.assigned = None, NONE
        self.handle(Lost())
        self.may_abandon = False
        assert not self.queries

    @rule(data=st.data())
    def a_batch_begins_or_ends(self, data: Any) -> None:
        if self.queries:
            group = data.draw(st.sampled_from(sorted(self.queries, key=sorted)))
            if self.queries[group]:
                self.queries[group] = False
                self.handle(BatchStored(group))
            elif self.lifecycle.queries[group] is Phase.READING:
                self.queries[group] = True

    @rule(data=st.data(), outside=st.sampled_from([None, "storage"]))
    def a_query_fails(self, data: Any, outside: Outside | None) -> None:
        if self.queries:
            group = data.draw(st.sampled_from(sorted(self.queries, key=sorted)))
            self.queries[group] = False
            self.handle(QueryFailed(group, "no number", outside))

    @rule(cleared=partitions)
    def good_partitions_are_found(self, cleared: frozenset[TopicPartition]) -> None:
        self.lifecycle.read_carefully(cleared, {})

    @rule(data=st.data())
    def a_query_drains_by_itself(self, data: Any) -> None:
        if self.queries:
            self.handle(Draining(frozenset({data.draw(st.sampled_from(sorted(self.queries, key=sorted)))})))

    @precondition(lambda self: self.starting is None)
    @rule(room=st.sampled_from([FULL, HALF_FULL, ROOM]))
    def the_storage_is_counted(self, room: Event) -> None:
        self.has_room = room is not FULL
        self.handle(room)

    @rule(answered=partitions, is_recreated=st.booleans(), leaderless=st.integers(0, 2))
    def the_brokers_report(self, answered: frozenset[TopicPartition], is_recreated: bool, leaderless: int) -> None:
        self.is_hopeless = leaderless == 2
        seen = LogsObserved(answered, is_recreated, leaderless > 0, self.is_hopeless)
        self.lifecycle.logs_observed(seen)

    @rule()
    def an_offset_is_to_be_moved(self) -> None:
        if self.starting is None and not self.is_stopping:
            self.handle(SeekRequested())

    @precondition(lambda self: self.lifecycle.is_seeking)
    @rule()
    def the_offset_is_moved_as_soon_as_nothing_is_read(self) -> None:
        if self.lifecycle.is_drained:
            assert not any(self.queries.values()), "an offset is moved beside a batch"
            self.handle(SeekBegun())
            assert not self.queries
        self.handle(SeekEnded())

    @precondition(lambda self: self.starting is None)
    @rule()
    def a_turn_ends(self) -> None:
        self.handle(Tick())
        self.handle(StartDue())

    @precondition(lambda self: self.starting is None)
    @rule()
    def it_is_stopped(self) -> None:
        self.handle(StopRequested())
        self.is_stopping = True
        self.handle(Revoked(self.assigned))
        self.assigned = NONE
        assert self.queries == {}

    @invariant()
    def the_lifecycle_knows_which_queries_there_are(self) -> None:
        assert self.lifecycle.queries.keys() == self.queries.keys()
        assert len(self.queries) <= 2
        assert (self.lifecycle.state is S.STOPPING) == self.is_stopping

    def teardown(self) -> None:
        """When everything works again, the worker reads everything unless it was stopped."""
        if self.starting is not None:
            self.start(StartFailed(self.starting, "no broker", "brokers"))
        self.queries = dict.fromkeys(self.queries, False)
        self.has_room, self.is_hopeless, self.paused = True, False, NONE
        self.handle(SeekEnded())
        self.handle(ROOM)
        self.handle(observed(answered=frozenset(PARTITIONS)))
        self.handle(Paused(NONE))
        self.lifecycle.read_carefully(frozenset(PARTITIONS), {})
        for _ in range(40):
            self.now += 31.0
            self.handle(Polled(self.assigned))
            for group in self.queries:
                self.handle(BatchStored(group))
            self.handle(Tick())
            self.handle(StartDue())
            if self.starting is not None:
                self.start(QueryStarted(self.starting, {}), self.starting)
        assert NONE.union(*self.queries) == (NONE if self.is_stopping else self.assigned)
        if self.queries:
            assert (self.lifecycle.state, list(self.queries)) == (S.RUNNING, [self.assigned])
            assert self.lifecycle.is_complete


def test_whatever_happens_no_partition_is_read_twice_and_nothing_revoked_is_committed() -> None:
    run_state_machine_as_test(World)
