from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.master.health import Health, HealthRules, Unhealthy, judge, on_heartbeat, on_memory_sample, refusals
from kctl.master.restart import Cause
from kctl_agent.replies.workers import PingReply, WaitingFor

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
        "workers.memory_soft (800 MiB) is not applied: after its start alone it takes 790 MiB; raise the limit"
    )


sizes = st.integers(1, 4000).map(lambda megabytes: megabytes * MB)
limits = st.one_of(st.none(), sizes)
rules = st.builds(
    HealthRules, st.floats(0.1, 100), limits, limits, st.integers(1, 5), st.one_of(st.none(), st.floats(0, 100))
)
beats = st.builds(
    beat,
    st.sampled_from([None, "starting", "running", "paused", "assigned"]),
    st.one_of(st.none(), st.integers(0, 3)),
    st.one_of(st.none(), st.integers(0, 2)),
)


@given(rules, st.lists(st.tuples(st.floats(0, 5), st.one_of(beats, sizes)), max_size=50))
def test_limits_below_a_start_are_ignored(of_fleet: HealthRules, history: list[tuple[float, PingReply | int]]) -> None:
    health, now = Health(0.0, 0.0), 0.0
    for pause, what in history:
        now += pause
        health = (
            on_heartbeat(health, what, now) if isinstance(what, PingReply) else on_memory_sample(health, of_fleet, what)
        )
        unhealthy = judge(of_fleet, health, now)
        if unhealthy is not None and unhealthy.cause is Cause.MEMORY:
            assert health.boot_bytes is not None
            assert health.resident_bytes is not None
            assert health.resident_bytes > health.boot_bytes
        if unhealthy is not None and unhealthy.cause is Cause.STALLED:
            assert of_fleet.stalled_seconds is not None
        if unhealthy is None:
            assert now - health.heartbeat_at < of_fleet.ping_timeout_seconds
