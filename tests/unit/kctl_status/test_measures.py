"""Hysteresis, time lag, growth, the window's memory, the sparkline, and all of them together for a group."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.reduce import PartitionRow, ResetPolicy
from kctl.status import Assessor, Owner, Rules, of_group
from kctl.status.hysteresis import Reported, settle
from kctl.status.rules import Judgement, allowed_lag, growth_per_second, judge
from kctl.status.sparkline import STEP_SECONDS, STEPS, Sparkline
from kctl.status.time_lag import Processed, lag_seconds, remembered
from kctl.status.window import Observation, Rewind, Window
from kctl.status.words import Status

OK: Judgement = (Status.OK, "commits come")
STALLED: Judgement = (Status.STALLED, "nothing comes")
READER = Owner("worker-0", "running")
STEPS_IN_TIME = st.lists(
    st.tuples(st.floats(0.1, 30.0), st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=80
)


def row(
    partition: int = 0, committed: int | None = 0, end: int | None = 0, timestamp: float | None = None, age: float = 0.0
) -> PartitionRow:
    worker = None if timestamp is None else "worker-0"
    return PartitionRow("orders", partition, 0, committed, committed, end, timestamp, worker, 1, age)


def reported_after(*judgements: tuple[float, Judgement]) -> Reported:
    reported = None
    for at, judgement in judgements:
        reported = settle(reported, judgement, at, 10.0)
    assert reported is not None
    return reported


def test_trouble_is_reported_at_once_and_its_end_after_it_has_lasted() -> None:
    assert reported_after((0, OK), (1, STALLED)).judgement == STALLED
    assert reported_after((0, STALLED), (1, OK), (10, OK)).judgement == (Status.STALLED, "not yet over: commits come")
    assert reported_after((0, STALLED), (1, OK), (11, OK)).judgement == OK


def test_what_flaps_stays_in_trouble() -> None:
    flapping = [(float(second), STALLED if second % 3 == 0 else OK) for second in range(100)]

    assert {reported_after(*flapping[: n + 1]).judgement[0] for n in range(100)} == {Status.STALLED}


@pytest.mark.parametrize("status", [Status.IDLE, Status.STARTING, Status.REBALANCING, Status.PAUSED])
def test_what_is_no_trouble_changes_at_once(status: Status) -> None:
    assert reported_after((0, (status, "")), (1, OK)).judgement == OK


def test_trouble_is_not_over_because_nothing_is_seen_any_more() -> None:
    assessor = Assessor(Rules())
    rows = [row(0, 5, 9), row(1, 9, 9)]
    for t in range(90):
        assessor.assess(rows, lambda _: READER, float(t), 1000.0 + t)

    stale = [each._replace(age_seconds=120.0) for each in rows]
    found = assessor.assess(stale, lambda _: READER, 209.0, 1209.0)
    gone = assessor.assess([row(0, None, 9)._replace(reset=ResetPolicy.NONE)], lambda _: READER, 210.0, 1210.0)

    assert [each.status for each in found] == [Status.STALLED, Status.UNKNOWN]
    assert found[0].reason == "not seen to be over: the last offsets are 120 s old"
    assert gone[0].status is Status.UNKNOWN, "that its offset is gone is known"


def test_time_lag_is_the_smaller_of_what_timestamp_and_log_allow() -> None:
    processed = Processed(timestamp=1000.0, committed=5, position=5)

    assert lag_seconds(0, processed, None, 5000.0) == 0.0
    assert lag_seconds(3, processed, None, 1060.0) == 60.0
    assert lag_seconds(3, processed, 2.0, 4600.0) == 2.0
    assert lag_seconds(3, None, 7.0, 4600.0) == 7.0
    assert lag_seconds(3, None, None, 4600.0) is None
    assert lag_seconds(None, processed, 2.0, 4600.0) is None
    assert lag_seconds(3, processed, 7.0, 999.0) == 7.0, "a timestamp of the future counts for nothing"


def test_the_last_processed_record_is_remembered_while_the_committed_offset_agrees() -> None:
    reported = remembered(None, row(committed=50, timestamp=1000.0))

    assert remembered(reported, row(committed=50)) == reported, "its worker is gone"
    assert remembered(reported, row(committed=60)) is None, "somebody else went on"
    assert remembered(reported, row(committed=40)) is None, "somebody went back"
    assert remembered(reported, row(committed=60, timestamp=1001.0)) == Processed(1001.0, 60, 60)


def watched(*seen: tuple[float, int, int]) -> Window:
    window = Window()
    for at, committed, end in seen:
        window.add(Observation(at, committed, end), 60.0)
    return window


def test_growth_is_measured_from_commit_to_commit() -> None:
    saw = [(float(t), t // 10 * 100, t * 12) for t in range(61)]  # a commit of 100 each 10 s, 120 arrive

    assert growth_per_second(watched(*saw), 60.0) == pytest.approx(2.0)
    assert growth_per_second(watched((0, 0, 0), (10, 0, 50)), 60.0) == 5.0
    assert growth_per_second(watched((0, 0, 0)), 60.0) is None


def test_all_that_waits_came_after_the_log_ended_at_what_is_committed() -> None:
    saw = [(float(t), 0 if t < 50 else 300, t * 10) for t in range(60)]

    assert watched(*saw).caught_up_at == 30.0


def test_time_lag_is_known_beyond_the_window_and_follows_when_it_falls() -> None:
    window = Window()
    for t in range(3121):  # 10/s arrive; nothing is read from 60 s to 420 s, then as much as arrives
        read = 10 * (t if t < 60 else max(60, t - 360))
        window.add(Observation(float(t), read, 10 * t), 3600.0)

    assert window.caught_up_at is not None
    assert 360 <= 3120 - window.caught_up_at <= 450


def test_time_lag_of_a_backlog_from_before_anything_was_seen_is_reckoned_by_the_pace() -> None:
    window = Window()
    for t in range(301):
        window.add(Observation(float(t), 10 * t, 10 * t + 36_000), 3600.0)

    assert window.caught_up_at == pytest.approx(300 - 3600, abs=1)
    assert watched((0, 0, 100), (90, 0, 100)).caught_up_at is None, "nothing arrives, so there is no pace"


def test_a_shorter_log_with_a_lower_commit_is_another_one() -> None:
    window = watched((0, 500, 500), (1, 500, 600), (2, 0, 10))

    assert (window.rewind, window.moved_at, window.waiting_since) == (None, None, 2)


def test_of_a_log_that_was_cut_off_the_rest_is_kept() -> None:
    window = watched((0, 100, 500), (1, 200, 600), (2, 200, 550))

    assert (list(window.committed), list(window.end), window.moved_at) == ([100, 200, 200], [500, 550, 550], 1)


def test_a_second_rewind_is_over_where_the_first_began() -> None:
    window = watched((0, 500, 500), (1, 100, 500), (2, 200, 500), (3, 150, 500))
    assert window.rewind == Rewind(3, 500, 150)

    window.add(Observation(4, 500, 500), 60.0)
    assert window.rewind is None


def test_offsets_that_are_no_later_are_no_news() -> None:
    assert watched((5, 10, 20), (5, 0, 30), (4, 0, 10)).newest == Observation(5, 10, 20)


@given(STEPS_IN_TIME)
def test_whatever_comes_the_window_stays_small_and_every_figure_sane(steps: list[tuple[float, int, int]]) -> None:
    window, at, committed, end = Window(), 0.0, 0, 0
    for pause, read, written in steps:
        at, end = at + pause, end + written
        committed = min(committed + read, end)
        window.add(Observation(at, committed, end), 60.0)
        assert window.caught_up_at is None or window.caught_up_at <= at
        assert judge(window, READER, Rules(), at)[0] not in (Status.REWIND, Status.UNKNOWN)
    assert len(window.at) == len(window.committed) == len(window.end) <= 64
    assert list(window.at) == sorted(set(window.at))
    assert list(window.end) == sorted(window.end)
    assert window.newest is None or window.newest[:3] == (window.at[-1], window.committed[-1], window.end[-1])


@given(STEPS_IN_TIME)
def test_a_commit_of_everything_never_makes_it_worse(steps: list[tuple[float, int, int]]) -> None:
    window, at, end = Window(), 0.0, 1
    for pause, _, written in steps:
        at, end = at + pause, end + written
        window.add(Observation(at, 0, end), 60.0)
    before, _ = judge(window, READER, Rules(), at)

    window.add(Observation(at + 1, end, end), 60.0)

    assert judge(window, READER, Rules(), at + 1)[0].severity <= max(before.severity, Status.OK.severity)


def test_the_allowed_lag_of_a_group_is_that_of_the_first_pattern_that_fits() -> None:
    settings = ("payments-*=1", "pay*=3", "a=b=7")

    assert [allowed_lag(settings, group) for group in ("payments-eu", "payroll", "a=b", "other")] == [1, 3, 7, 0]


def test_what_is_allowed_to_be_left_over_is_no_time_lag() -> None:
    assessor = Assessor(Rules(allowed_lag=1))
    for t in range(100):
        [found] = assessor.assess([row(0, 10, 11)], lambda _: READER, float(t), 1000.0 + t)

    assert (found.status, found.lag_seconds, found.catchup_seconds) == (Status.IDLE, 0.0, 0.0)


def test_how_much_of_the_window_was_seen_goes_with_the_assessment() -> None:
    assessor, complete = Assessor(Rules()), []
    for t in [*range(91), *range(150, 250)]:
        rows = [row(0, t, t), row(1, 0, 5)]
        each = assessor.assess(rows, lambda _: READER, float(t), 1000.0 + t)
        complete.append(each[0].window_complete)

    assert (complete[0], complete[30], complete[60], complete[90]) == (0.0, 0.5, 1.0, 1.0)
    assert (complete[91], complete[121], complete[-1]) == (0.0, 0.5, 1.0), "after a minute in which nothing was seen"
    assert of_group(rows, each).window_complete == 1.0


def test_the_sparkline_keeps_fifteen_minutes_and_shows_where_it_knows_nothing() -> None:
    line = Sparkline()
    assert line.lags() == []

    for step in range(STEPS + 10):
        line.add(step, step * STEP_SECONDS)
        line.add(0, step * STEP_SECONDS + 1)
    line.add(None, (STEPS + 10) * STEP_SECONDS)
    line.add(7, (STEPS + 13) * STEP_SECONDS)

    assert line.lags() == [*range(14, STEPS + 10), None, None, None, 7]


def test_a_group_is_as_its_worst_partition_and_its_slowest() -> None:
    assessor = Assessor(Rules(window_seconds=10.0, hold_seconds=0.0))
    rows = [row(0), row(1), row(2)]
    for t in range(21):
        rows = [
            row(0, 10, 10, timestamp=1000.0 + t),
            row(1, 100 + t * 20, 1000 + t * 10, timestamp=1000.0 + t),
            row(2, 5, 9 if t > 2 else 5),
        ]
        each = assessor.assess(rows, lambda r: READER if r.worker else Owner(None), float(t), 1000.0 + t)
    group = of_group(rows, each)

    assert [one.status for one in each] == [Status.IDLE, Status.OK, Status.STOPPED]
    assert (each[1].lag_seconds, each[1].growth_per_second, each[1].catchup_seconds) == (0.0, -10.0, 70.0)
    assert each[2].lag_seconds == 18.0
    assert (group.status, group.lag_seconds, group.catchup_seconds) == (Status.STOPPED, 18.0, None)
    assert group.reason.startswith("1 of 3 partitions stopped: orders-2; nothing has been committed for 17 s while")
    assert [assessor.sparkline("orders", 2)[-1], assessor.sparkline("orders", 9)] == [4, []]


def test_a_first_commit_below_the_position_is_no_rewind_and_a_partition_that_is_gone_is_forgotten() -> None:
    assessor = Assessor(Rules())
    uncommitted = PartitionRow("orders", 0, 0, None, 50, 100, None, "worker-0", 1, 0.0)
    assessor.assess([uncommitted], lambda _: READER, 0.0, 1000.0)

    found = assessor.assess([row(0, 40, 100)], lambda _: READER, 1.0, 1001.0)
    assert found[0].status is Status.OK

    assert assessor.assess([], lambda _: READER, 2.0, 1002.0) == ()
    assert assessor.sparkline("orders", 0) == []


def test_nothing_is_known_of_a_group_without_partitions() -> None:
    assert of_group([], []).status is Status.UNKNOWN


LEVELS = st.lists(
    st.tuples(
        st.integers(1, 40), st.integers(-1, 3), st.integers(0, 3), st.sampled_from([1.0, 5.0, 20.0]), st.integers(0, 2)
    ),
    min_size=1,
    max_size=12,
)


@given(LEVELS)
def test_what_has_not_changed_is_assessed_as_by_the_rules_but_for_the_seconds_in_the_reason(
    levels: list[tuple[int, int, int, float, int]],
) -> None:
    """Stretches of the same offsets, each so many polls long, between commits, arrivals and changes of members."""
    quick, thorough = Assessor(Rules(), keep_reason_seconds=60), Assessor(Rules())
    now, committed, end = 0.0, 100, 100
    for polls, commits, arrivals, seconds, members in levels:
        committed, end = committed + commits, end + arrivals
        owner = Owner(None, None, None, members=members)
        for _ in range(polls):
            now += seconds
            rows = [row(0, committed, end)._replace(worker=None)]
            [ours] = quick.assess(rows, lambda _, owner=owner: owner, now, now)  # type: ignore[misc]
            [full] = thorough.assess(rows, lambda _, owner=owner: owner, now, now)  # type: ignore[misc]
            assert replace(ours, reason="") == replace(full, reason="")


def test_the_seconds_in_the_reason_of_what_is_idle_are_renewed_in_time() -> None:
    assessor, owner = Assessor(Rules(), keep_reason_seconds=60), Owner(None, None, None, members=1)
    reasons = [assessor.assess([row(0, 9, 9)], lambda _: owner, 10.0 * n, 10.0 * n)[0].reason for n in range(40)]

    assert len(set(reasons[10:])) in (5, 6)
    assert all(reason.startswith("nothing has arrived for ") for reason in reasons[10:])
