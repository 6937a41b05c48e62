from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
            living = True
            if last_failure is not None and isinstance(event, Due):
                assert now - last_failure >= policy.backoff_min_seconds - 1e-6, "a restart storm"
        assert living == (status.state in LIVING)
        assert (status.next_try_at is not None) == (status.state is State.BACKOFF)
        assert status.desired in {State.RUNNING, State.STOPPED}


@given(histories)
def test_a_stopped_fleet_stays_stopped_whatever_still_happens(history: list[tuple[float, Event, float]]) -> None:
    status, now = run([(0, Start()), (1, Ready()), (2, Stop())]), 2.0
    for pause, event, jitter in history:
        if isinstance(event, Start | Replace):
            continue
        now += pause
        status = step(POLICY, status, event, now, jitter)
        assert status.state in {State.STOPPING, State.UNKILLABLE, State.STOPPED}
