from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.master.health import Health, HealthRules, Unhealthy, judge, on_heartbeat, on_memory_sample, refusals
from kctl.master.restart import (
    EXIT_CONFIG,
    Cause,
    Due,
    Event,
    Exited,
    Ready,
    Replace,
    RestartPolicy,
    Start,
    Stop,
    SupervisionStatus,
    Survived,
    step,
)
from kctl.master.restart import SupervisionState as State
from kctl.master.table_maintenance import LEAST_FILES, LONGEST_SECONDS, PATIENCE_SECONDS, REST_SECONDS, Schedule
from kctl_agent.replies.workers import PingReply, WaitingFor

POLICY = RestartPolicy(backoff_min_seconds=1, backoff_max_seconds=60, stable_seconds=30)


def run(
    events: list[tuple[float, Event]], status: SupervisionStatus | None = None, jitter: float = 0.0
) -> SupervisionStatus:
    status = status or SupervisionStatus(since=0)
    for now, event in events:
        status = step(POLICY, status, event, now, jitter)
    return status


@pytest.mark.parametrize(
    ("events", "state", "desired"),
    [
        ([Start()], State.STARTING, State.RUNNING),
        ([Start(), Ready()], State.RUNNING, State.RUNNING),
        ([Start(), Exited(1)], State.BACKOFF, State.RUNNING),
        ([Start(), Ready(), Exited(-9)], State.BACKOFF, State.RUNNING),
        ([Start(), Exited(EXIT_CONFIG)], State.FATAL, State.RUNNING),
        ([Start(), Ready(), Stop()], State.STOPPING, State.STOPPED),
        ([Start(), Stop(), Exited(0)], State.STOPPED, State.STOPPED),
        ([Start(), Exited(1), Stop()], State.STOPPED, State.STOPPED),
        ([Start(), Ready(), Replace(Cause.REQUESTED), Exited(0)], State.STARTING, State.RUNNING),
        ([Start(), Replace(Cause.UNRESPONSIVE), Exited(-9)], State.BACKOFF, State.RUNNING),
        ([Start(), Ready(), Replace(Cause.REQUESTED), Stop(), Exited(0)], State.STOPPED, State.STOPPED),
        ([Start(), Ready(), Stop(), Start(), Exited(0)], State.STARTING, State.RUNNING),
        ([Start(), Exited(EXIT_CONFIG), Start()], State.STARTING, State.RUNNING),
        ([Start(), Exited(EXIT_CONFIG), Stop()], State.STOPPED, State.STOPPED),
        ([Start(), Ready(), Start()], State.RUNNING, State.RUNNING),
        ([Start(), Ready(), Survived()], State.UNKILLABLE, State.RUNNING),
        ([Start(), Ready(), Survived(), Exited(-9)], State.BACKOFF, State.RUNNING),
        ([Start(), Ready(), Stop(), Survived()], State.UNKILLABLE, State.STOPPED),
        ([Start(), Ready(), Stop(), Survived(), Exited(-9)], State.STOPPED, State.STOPPED),
        ([Start(), Survived(), Stop(), Exited(-9)], State.STOPPED, State.STOPPED),
        ([Start(), Stop(), Survived(), Start(), Exited(-9)], State.STARTING, State.RUNNING),
        ([Start(), Replace(Cause.UNRESPONSIVE), Survived(), Exited(-9)], State.BACKOFF, State.RUNNING),
        ([Ready()], State.STOPPED, State.STOPPED),
        ([Stop()], State.STOPPED, State.STOPPED),
    ],
)
def test_events_lead_to_states(events: list[Event], state: State, desired: State) -> None:
    status = run([(float(now), event) for now, event in enumerate(events)])

    assert (status.state, status.desired) == (state, desired)


@pytest.mark.parametrize(
    ("last", "is_requested"),
    [(Ready(), True), (Replace(Cause.REQUESTED), True), (Replace(Cause.MEMORY), False), (Exited(1), False)],
)
def test_a_start_counts_as_requested_until_the_process_fails(last: Event, is_requested: bool) -> None:
    assert run([(0, Start()), (1, Ready()), (2, last)]).is_requested is is_requested


@pytest.mark.shows("a worker that dies at once is retried with growing waits; with a wrong configuration, not")
def test_only_a_configuration_that_cannot_be_used_is_given_up_all_else_is_tried_with_growing_pauses() -> None:
    status = run([(0, Start())])
    for number in range(100):
        status = step(POLICY, status, Exited(1), 100.0 * number, 1.0)
        assert status.state is State.BACKOFF
        assert status.next_try_at == 100.0 * number + min(POLICY.backoff_max_seconds, 2.0 ** (number + 1))
        status = step(POLICY, status, Due(), 100.0 * number + 99, 1.0)

    given_up = step(POLICY, status, Exited(EXIT_CONFIG), 1e6, 1.0)
    assert given_up.state is State.FATAL
    assert run([(2e6, Due())], given_up) is given_up


def test_a_stable_run_forgives_the_failures_before_it_and_a_long_start_does_not() -> None:
    tired = replace(run([(0, Start()), (1, Ready())]), failures=4)

    assert run([(1 + 29.9, Exited(1))], tired).failures == 5
    assert run([(1 + 30.0, Exited(1))], tired).failures == 1

    starting = replace(run([(0, Start())]), failures=4)
    assert run([(500, Exited(1))], starting).failures == 5


policies = st.builds(
    lambda low, factor, stable: RestartPolicy(low, low * factor, stable),
    st.floats(0.01, 100),
    st.floats(1, 1000),
    st.floats(0, 100),
)


events = st.one_of(
    st.sampled_from([Start(), Stop(), Ready(), Due(), Survived()]),
    st.builds(Replace, st.sampled_from(Cause)),
    st.builds(Exited, st.sampled_from([0, 1, 78, -9, -15])),
)
LIVING = {State.STARTING, State.RUNNING, State.STOPPING, State.UNKILLABLE}
histories = st.lists(st.tuples(st.floats(0, 5), events, st.floats(0, 1)), max_size=60)


@pytest.mark.shows("a process never runs twice; restarts have a bounded back-off")
@given(policies, histories)
def test_there_are_never_two_incarnations(policy: RestartPolicy, history: list[tuple[float, Event, float]]) -> None:
    status, now, living, last_failure = SupervisionStatus(since=0), 0.0, False, None
    for pause, event, jitter in history:
        now += pause
        if isinstance(event, Exited | Survived) and not living:
            continue  # a process that is not alive cannot report
        before = status
        status = step(policy, status, event, now, jitter)
        if isinstance(event, Exited):
            living = False
            last_failure = now if status.state is State.BACKOFF else None
        if status is not before and status.state is State.STARTING:
            assert not living, "a second incarnation"
            assert before.desired is State.RUNNING or isinstance(event, Start), "it was stopped"
            living = True
            if last_failure is not None and isinstance(event, Due):
                assert now - last_failure >= policy.backoff_min_seconds - 1e-6, "a restart storm"
        assert living == (status.state in LIVING)
        assert (status.next_try_at is not None) == (status.state is State.BACKOFF)
        assert status.desired in {State.RUNNING, State.STOPPED}


MANY, BATCH = LEAST_FILES, 1000


@pytest.fixture
def schedule() -> Schedule:
    return Schedule(0.0)


@pytest.mark.shows("the master compacts small files at quiet times and removes old ones daily")
def test_many_small_files_are_compacted_at_once_where_one_batch_takes_all_that_waits(schedule: Schedule) -> None:
    assert not schedule.is_due(1.0, MANY - 1, 0, BATCH)
    assert not schedule.is_due(1.0, None, 0, BATCH)
    assert schedule.is_due(1.0, MANY, BATCH, BATCH)
    assert not schedule.is_due(LONGEST_SECONDS - 1.0, None, None, BATCH)
    assert schedule.is_due(LONGEST_SECONDS, None, None, BATCH), "once a day, whatever is reported"


@pytest.mark.parametrize("lag", [BATCH + 1, None])
def test_a_group_that_is_behind_has_it_done_after_an_hour_of_small_files(schedule: Schedule, lag: int | None) -> None:
    assert not schedule.is_due(1.0, MANY, lag, BATCH)
    assert not schedule.is_due(100.0, MANY - 1, lag, BATCH)
    assert not schedule.is_due(200.0, MANY, lag, BATCH)
    assert not schedule.is_due(100.0 + PATIENCE_SECONDS, MANY, lag, BATCH)
    assert schedule.is_due(200.0 + PATIENCE_SECONDS, MANY, lag, BATCH)


def test_it_rests_for_ten_minutes_or_for_nineteen_times_as_long_as_it_took(schedule: Schedule) -> None:
    schedule.done(10.0, 12.0)
    assert not schedule.is_due(11.0 + REST_SECONDS, MANY, 0, BATCH)
    assert schedule.is_due(12.0 + REST_SECONDS, MANY, 0, BATCH)

    schedule.done(1000.0, 1100.0)
    assert not schedule.is_due(1099.0 + 1900.0, MANY, 0, BATCH)
    assert schedule.is_due(1100.0 + 1900.0, MANY, 0, BATCH)


MB = 1 << 20
RULES = HealthRules(
    ping_timeout_seconds=10,
    memory_soft_bytes=800 * MB,
    memory_hard_bytes=1000 * MB,
    memory_breaches=3,
    stalled_seconds=60,
    main_thread_seconds=60,
)
WELL = Health(heartbeat_at=100.0, progress_at=100.0, state="running", batches_total=5, boot_bytes=500 * MB)


def beat(state: str | None = "running", batches: int | None = 5, lag: int | None = 9) -> PingReply:
    return PingReply(1, state=state, batches_total=batches, lag=lag)


@pytest.mark.parametrize(
    ("health", "now", "cause", "at_once"),
    [
        (WELL, 109.9, None, None),
        (WELL, 110.0, Cause.UNRESPONSIVE, True),
        (replace(WELL, resident_bytes=900 * MB, breaches=2), 101, None, None),
        (replace(WELL, resident_bytes=900 * MB, breaches=3), 101, Cause.MEMORY, False),
        (replace(WELL, resident_bytes=1001 * MB, breaches=1), 101, Cause.MEMORY, True),
        (replace(WELL, resident_bytes=1001 * MB, boot_bytes=None), 101, None, None),
        (replace(WELL, resident_bytes=1001 * MB, boot_bytes=950 * MB), 101, None, None),
        (replace(WELL, heartbeat_at=170.0), 159.9, None, None),
        (replace(WELL, heartbeat_at=170.0), 160.0, Cause.STALLED, False),
        (replace(WELL, hung_seconds=59.9), 101, None, None),
        (replace(WELL, hung_seconds=60.0), 101, Cause.UNRESPONSIVE, True),
    ],
)
def test_the_gravest_fault_is_named(health: Health, now: float, cause: Cause | None, at_once: bool | None) -> None:
    unhealthy = judge(RULES, health, now)

    assert (unhealthy and unhealthy.cause, unhealthy and unhealthy.at_once) == (cause, at_once)


@pytest.mark.shows("a paused worker, or one that waits for something outside, is not stalled")
@pytest.mark.parametrize(
    ("reported", "is_progress"),
    [
        (beat(), False),
        (beat(batches=6), True),
        (beat(lag=0), True),
        (beat(lag=None), True),
        (beat(batches=None), True),
        (beat(state="assigned"), False),
        (beat(state="rebalancing"), False),
        *((beat(state=state), True) for state in ("joining", "throttled", "paused", "stopping")),
        (replace(beat(state="starting"), main_thread_age_seconds=0.1), True),
        (replace(beat(), waiting_for=WaitingFor("brokers")), True),
        (replace(beat(state="starting"), waiting_for=WaitingFor("brokers")), True),
    ],
)
def test_no_batch_is_a_stall_only_where_one_was_to_be_expected(reported: PingReply, is_progress: bool) -> None:
    health = on_heartbeat(WELL, reported, 150.0)

    assert health.heartbeat_at == 150.0
    assert health.progress_at == (150.0 if is_progress else 100.0)


def test_a_long_batch_that_stores_something_is_progress() -> None:
    health = on_heartbeat(WELL, replace(beat(), progress=7), 150.0)
    assert on_heartbeat(health, replace(beat(), progress=7), 160.0).progress_at == 150.0
    assert on_heartbeat(health, replace(beat(), progress=8), 160.0).progress_at == 160.0


def test_a_main_thread_hangs_only_by_two_answers_in_a_row() -> None:
    """After a freeze of the whole machine, the agent may answer before the main thread gets its turn."""
    first = on_heartbeat(WELL, replace(beat(), main_thread_age_seconds=70.0), 101.0)
    assert judge(RULES, first, 101) is None

    again = on_heartbeat(first, replace(beat(), main_thread_age_seconds=71.0), 102.0)
    assert (judge(RULES, again, 102) or again) == Unhealthy(
        Cause.UNRESPONSIVE, True, "its agent answers, but its main thread has hung for 70.0 s"
    )

    recovered = on_heartbeat(first, replace(beat(), main_thread_age_seconds=0.1), 102.0)
    assert judge(RULES, recovered, 102) is None


@pytest.mark.parametrize("batches", [0, None])
def test_a_process_whose_main_thread_never_comes_to_its_first_turn_is_stalled(batches: int | None) -> None:
    """The agent answers although the JVM of an engine hangs at its start, or the handler cannot be opened."""
    health = Health(heartbeat_at=100.0, progress_at=100.0)
    for now in (101.0, 130.0, 160.0):
        health = on_heartbeat(health, PingReply(1, state="starting", batches_total=batches), now)

    assert judge(RULES, health, 159.9) is None
    assert judge(RULES, health, 160.0) == Unhealthy(
        Cause.STALLED, True, "its agent answers, but it has not begun its work for 60.0 s"
    )
    begun = on_heartbeat(
        health, PingReply(1, state="starting", batches_total=batches, main_thread_age_seconds=0.0), 160.5
    )
    assert judge(RULES, begun, 161.0) is None


@pytest.mark.shows("half an hour of waiting for another system is not a fault (faked time)")
@pytest.mark.parametrize("state", ["starting", "joining", "assigned", "running"])
def test_half_an_hour_of_waiting_for_something_outside_is_no_fault_and_then_it_has_its_time_again(state: str) -> None:
    health = Health(heartbeat_at=0.0, progress_at=0.0)
    for now in range(1800):
        health = on_heartbeat(health, replace(beat(state), waiting_for=WaitingFor("brokers")), float(now))
        assert judge(RULES, health, float(now)) is None

    for now in range(1800, 1859):
        health = on_heartbeat(health, beat(state), float(now))
        assert judge(RULES, health, float(now)) is None


def test_memory_is_measured_after_the_start_and_forgiven_below_the_limit() -> None:
    health = on_memory_sample(replace(WELL, state="starting", boot_bytes=None), RULES, 50 * MB)
    assert health.boot_bytes is None

    health = on_memory_sample(replace(health, state="running"), RULES, 400 * MB)
    health = on_memory_sample(health, RULES, 700 * MB)

    assert health.boot_bytes == 400 * MB

    health = WELL
    for size in (900, 900, 700, 900, 900):
        health = on_memory_sample(health, RULES, size * MB)

    assert health.breaches == 2
    assert judge(RULES, health, 101) is None

    assert refusals(RULES, WELL) is None
    assert refusals(RULES, replace(WELL, boot_bytes=None)) is None
    assert refusals(RULES, replace(WELL, boot_bytes=790 * MB)) == (
        "workers.memory_soft (800 MiB) is not applied: right after its start, the process uses 790 MiB; raise the limit"
    )
