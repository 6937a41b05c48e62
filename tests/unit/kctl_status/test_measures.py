from dataclasses import replace
from math import isnan, nan

import numpy as np
import pytest

from kctl.rows.columns import ABSENT
from kctl.rows.partitions import ResetPolicy
from kctl.status import Owner, StatusRules
from kctl.status.assessments import judged_lag_seconds, longest_lag_seconds
from kctl.status.assessor import Processed, lag_seconds
from kctl.status.history import History, SeenOffsets
from kctl.status.judgements import Held, Hysteresis
from kctl.status.rules import allowed_lag
from kctl.status.words import NUMBERS, STATUSES, Assessment, Status
from tests.partitions import Row, RowAssessor, assessments_of, of_group

READER = Owner("worker-0", "running")


def row(
    partition: int = 0, committed: int | None = 0, end: int | None = 0, timestamp: float | None = None, age: float = 0.0
) -> Row:
    worker = None if timestamp is None else "worker-0"
    return Row("orders", partition, 0, committed, committed, end, timestamp, worker, 1, age)


def reported_after(*judgements: tuple[float, Status]) -> tuple[Status, Held]:
    hysteresis = Hysteresis(1)
    for at, status in judgements:
        [held] = hysteresis.settle(np.array([NUMBERS[status]], np.int8), at, 10.0, np.array([False]))
    return STATUSES[hysteresis.status[0]], Held(int(held))


@pytest.mark.shows("time lag, growth and catch-up do not flap")
def test_trouble_is_reported_at_once_and_its_end_after_it_has_lasted() -> None:
    assert reported_after((0, Status.OK), (1, Status.STALLED)) == (Status.STALLED, Held.NO)
    assert reported_after((0, Status.STALLED), (1, Status.OK), (10, Status.OK)) == (Status.STALLED, Held.NOT_YET_OVER)
    assert reported_after((0, Status.STALLED), (1, Status.OK), (11, Status.OK)) == (Status.OK, Held.NO)
    for no_trouble in (Status.IDLE, Status.STARTING, Status.REBALANCING, Status.PAUSED):
        assert reported_after((0, no_trouble), (1, Status.OK)) == (Status.OK, Held.NO)

    flapping = [(float(second), Status.STALLED if second % 3 == 0 else Status.OK) for second in range(100)]

    assert {reported_after(*flapping[: n + 1])[0] for n in range(100)} == {Status.STALLED}


def test_trouble_is_not_over_because_nothing_is_seen_any_more() -> None:
    assessor = RowAssessor()
    rows = [row(0, 5, 9), row(1, 9, 9)]
    for t in range(90):
        assessor.assess(rows, lambda _: READER, float(t), 1000.0 + t)

    stale = [each._replace(age_seconds=120.0) for each in rows]
    found = assessor.assess(stale, lambda _: READER, 209.0, 1209.0)
    [alone] = assessor.assess(stale[1:], lambda _: READER, 209.5, 1209.5)
    gone = assessor.assess([row(0, None, 9)._replace(reset=ResetPolicy.NONE)], lambda _: READER, 210.0, 1210.0)

    assert [each.status for each in found] == [Status.STALLED, Status.UNKNOWN]
    assert alone.status is Status.UNKNOWN, "the trouble of a partition that is gone is not another's"
    assert found[0].reason == "not seen to be over: the last offsets are 120 s old"
    assert gone[0].status is Status.UNKNOWN, "that its offset is gone is known"


def time_lag(lag: int, timestamp: float, caught_up_ago: float, now_unix: float) -> float:
    [found] = lag_seconds(np.array([lag]), np.array([timestamp]), np.array([100.0 - caught_up_ago]), 100.0, now_unix)
    return float(found)


def test_time_lag_is_the_smaller_of_what_timestamp_and_log_allow() -> None:
    assert time_lag(0, 1000.0, nan, 5000.0) == 0.0
    assert time_lag(3, 1000.0, nan, 1060.0) == 60.0
    assert time_lag(3, 1000.0, 2.0, 4600.0) == 2.0
    assert time_lag(3, nan, 7.0, 4600.0) == 7.0
    assert isnan(time_lag(3, nan, nan, 4600.0))
    assert isnan(time_lag(ABSENT, 1000.0, 2.0, 4600.0))
    assert time_lag(3, 1000.0, 7.0, 999.0) == 7.0, "a timestamp of the future counts for nothing"


def test_the_last_processed_record_is_remembered_while_the_committed_offset_agrees() -> None:
    def timestamp_after(committed: int, timestamp: float = nan) -> float:
        processed = Processed(1)
        for reported, at in ((50, 1000.0), (committed, timestamp)):
            offset = np.array([reported])
            processed.add(np.array([at]), np.array([ABSENT]) if isnan(at) else offset, offset)
        return float(processed.timestamp[0])

    assert timestamp_after(50) == 1000.0, "its worker is gone"
    assert isnan(timestamp_after(60)), "somebody else went on"
    assert isnan(timestamp_after(40)), "somebody went back"
    assert timestamp_after(60, 1001.0) == 1001.0


def watched(*seen: tuple[float, int, int], keep_seconds: float = 60.0) -> History:
    history = History(0)
    history.choose(np.array([-1]))
    for each in seen:
        watch(history, *each, keep_seconds=keep_seconds)
    return history


def watch(history: History, at: float, committed: int, end: int, keep_seconds: float = 60.0) -> None:
    new = SeenOffsets(np.array([at]), np.array([committed]), np.array([end]), np.array([ABSENT]))
    history.add(new, np.array([True]), np.array([keep_seconds]), np.array([0]))


def rows_of(history: History) -> tuple[list[float], list[int], list[int]]:
    kept = slice(history.rows.count[0])
    at, committed, end = (
        column[kept, 0].tolist() for column in (history.rows.at, history.rows.committed, history.rows.end)
    )
    return at, committed, end


def test_offsets_that_outgrow_32_bits_are_judged_as_shorter_ones() -> None:
    def assessed(base: int) -> list[object]:
        assessor, found = RowAssessor(), list[object]()
        for t in range(0, 600, 5):
            rows = [
                row(0, base + 3 * t, base + 4 * t),
                row(1, base + t - t % 20, base + t),
                row(2, base + 100, base + t if t < 300 else base + 90),
            ]
            each = assessor.assess(rows, lambda _: Owner(None, members=1), float(t), 1000.0 + t)
            found += [(one.status, one.lag_seconds, one.growth_per_second, one.catchup_seconds) for one in each]
        return found

    assert assessed(2**31 - 700) == assessed(1000) == assessed(2**40)


def test_time_lag_is_known_beyond_the_window_or_reckoned_by_the_pace() -> None:
    history = watched()
    for t in range(0, 3121, 5):  # 10/s arrive; nothing is read from 60 s to 420 s, then as much as arrives
        read = 10 * (t if t < 60 else max(60, t - 360))
        watch(history, float(t), read, 10 * t, 3600.0)

    assert 360 <= 3120 - history.caught_up_at()[0] <= 450

    history = watched(*((float(t), 10 * t, 10 * t + 36_000) for t in range(301)), keep_seconds=3600.0)

    assert history.caught_up_at() == pytest.approx(300 - 3600, abs=1)
    assert isnan(watched((0, 0, 100), (90, 0, 100)).caught_up_at()[0]), "nothing arrives, so there is no pace"

    saw = [(float(t), 0 if t < 50 else 300, t * 10) for t in range(60)]

    assert watched(*saw).caught_up_at() == 30.0


def test_a_log_is_recreated_cut_off_rewound_or_no_later() -> None:
    history = watched((0, 500, 500), (1, 500, 600), (2, 0, 10))

    assert isnan(history.rewind_at[0])
    assert isnan(history.moved_at[0])
    assert history.waiting_since == 2

    history = watched((0, 100, 500), (1, 200, 600), (2, 200, 550))

    assert rows_of(history) == ([0, 1, 2], [100, 200, 200], [500, 550, 550])
    assert history.moved_at == 1

    history = watched((0, 500, 500), (1, 100, 500), (2, 200, 500), (3, 150, 500))
    assert (history.rewind_at[0], history.rewind_from[0], history.rewind_to[0]) == (3, 500, 150)

    watch(history, 4, 500, 500)
    assert isnan(history.rewind_at[0])

    history = watched((5, 10, 20), (5, 0, 30), (4, 0, 10))

    assert [float(column[0]) for column in history.newest[:3]] == [5, 10, 20]


def test_an_allowed_lag_is_that_of_the_first_pattern_and_no_time_lag() -> None:
    settings = ("payments-*=1", "pay*=3", "a=b=7")

    assert [allowed_lag(settings, group) for group in ("payments-eu", "payroll", "a=b", "other")] == [1, 3, 7, 0]

    assessor = RowAssessor(allowed_lag=1)
    for t in range(100):
        [found] = assessor.assess([row(0, 10, 11)], lambda _: READER, float(t), 1000.0 + t)

    assert (found.status, found.lag_seconds, found.catchup_seconds) == (Status.IDLE, 0.0, 0.0)


def test_a_group_is_as_its_worst_partition_and_its_slowest() -> None:
    assessor = RowAssessor(StatusRules(window_seconds=10.0, hold_seconds=0.0))
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


@pytest.mark.shows("with `read_committed`, messages behind an open transaction are shown and judged")
@pytest.mark.parametrize(("seconds", "status"), [(None, "ok"), (30.0, "ok"), (61.0, "warn"), (901.0, "stalled")])
def test_an_open_transaction_is_trouble_when_it_has_lasted(seconds: float | None, status: str) -> None:
    owner = Owner("worker-0", "running", behind_transaction=1200, transaction_seconds=seconds)
    rows = [row(0, 10, 10), row(1, 10, 10)]
    each = RowAssessor().assess(rows, lambda _: owner, 0.0, 1000.0)

    assert each[0].status.value == status
    if status != "ok":
        words = f"messages wait behind a transaction that has been open for {seconds:.0f} s: end its producer"
        assert each[0].reason.startswith(f"1200 {words}")
        assert of_group(rows, each).reason.startswith(f"2 of 2 partitions {status}: orders-0, orders-1; 2400 {words}")


def test_growth_is_measured_again_while_nothing_changes() -> None:
    """The assessor may not reuse a judgement: growth changes when the last commit leaves the window."""
    assessor, now, committed, end = RowAssessor(), 0.0, 100, 100
    found = []
    for polls, commits, arrivals, seconds, members in [
        (1, 0, 0, 1.0, 0),
        (2, 0, 1, 20.0, 0),
        (1, 1, 3, 1.0, 0),
        (6, 2, 0, 1.0, 0),
        (15, -1, 1, 5.0, 0),
    ]:
        committed, end, owner = committed + commits, end + arrivals, Owner(None, None, None, members=members)
        for _ in range(polls):
            now += seconds
            [each] = assessor.assess([row(0, committed, end)], lambda _, owner=owner: owner, now, now)  # type: ignore[misc]
            found.append((each.status, each.growth_per_second))

    assert found[3:5] == [(Status.OK, 0.073), (Status.OK, -2.0)]
    assert set(found[10:23]) == {(Status.REWIND, 0.0)}
    assert found[23:] == [(Status.STOPPED, 0.0), (Status.STOPPED, 0.025)]


@pytest.mark.shows("a partition with messages in the storage is not `idle`; its reason has their number")
def test_messages_in_the_storage_are_in_the_reason_and_keep_a_partition_from_being_idle() -> None:
    assessor = RowAssessor()
    parked, empty, unknown = (row(number, 9, 9) for number in range(3))
    parked = parked._replace(stored_messages=850, stored_seconds=75.0)
    read = row(3, 5, 9, timestamp=990.0)._replace(stored_messages=1, stored_seconds=3.0)
    rows = [parked, empty._replace(stored_messages=0), unknown, read]

    found = assessor.assess(rows, lambda _: READER, 0.0, 1000.0)
    later = assessor.assess([each._replace(age_seconds=0.0) for each in rows], lambda _: READER, 61.0, 1061.0)

    assert [each.oldest_unhandled_seconds for each in found] == [75.0, 0.0, None, 10.0]
    assert (later[0].status, later[0].reason) == (Status.OK, "850 messages wait in the storage")
    assert (later[1].status, later[2].status) == (Status.IDLE, Status.IDLE)
    assert later[3].reason == "commits come, 4 messages wait in Kafka, and 1 message waits in the storage"


@pytest.mark.shows("the age of the oldest message is not 0 while messages of unknown age are pending")
def test_a_group_has_a_time_lag_of_zero_only_if_each_partition_has_one() -> None:
    rows = [row(0, 9, 9), row(1, None, 40)]

    found = RowAssessor().assess(rows, lambda _: READER, 0.0, 1000.0)

    assert [each.lag_seconds for each in found] == [0.0, None]
    assert (of_group(rows, found).lag_seconds, longest_lag_seconds(found)) == (None, None)
    late = RowAssessor().assess([row(0, 5, 9, timestamp=990.0), rows[1]], lambda _: READER, 0.0, 1000.0)
    assert (of_group(rows, late).lag_seconds, longest_lag_seconds(late)) == (10.0, 10.0)


@pytest.mark.shows("long silences of a few partitions, or on other hosts, do not raise the limit of the oldest message")
def test_the_lag_that_is_judged_is_known_of_each_partition_and_its_cycle_is_the_usual_one() -> None:
    cycles = {0: 2.0, 1: 600.0, 2: 600.0, 3: 2.0, 4: 2.0, 5: 900.0, 6: 1200.0}  # 1 and 2 had outages
    owners = {number: replace(READER, last_batch_seconds=cycle) for number, cycle in cycles.items()}
    owners |= {5: replace(owners[5], state="paused"), 6: replace(owners[6], state="elsewhere")}
    rows = [row(number, 5, 9, timestamp=990.0 - number) for number in cycles]

    def judged(*others: Row) -> tuple[float | None, float]:
        assessor = RowAssessor()
        return judged_lag_seconds(assessor.assess([*rows, *others], lambda each: owners[each.partition], 0.0, 1000.0))

    assert judged() == (14.0, 2.0)
    owners[7] = owners[0]
    assert judged(row(7, 5, 9)) == (None, 2.0), "the age of its messages is not known"
    owners.update(dict.fromkeys(owners, owners[6]))
    assert judged() == (0.0, 0.0)


@pytest.mark.parametrize("cycles", [[2.0], [2.0, 600.0], [600.0, 4.0, 2.0], [9.0, 4.0, 2.0, 1.0], [2.0, nan, 2.0]])
def test_the_usual_cycle_is_the_median_and_unknown_if_any_cycle_is(cycles: list[float]) -> None:
    found = assessments_of(*[Assessment(Status.OK, "", 0.0)] * len(cycles), cycles=cycles)

    assert judged_lag_seconds(found)[1] == pytest.approx(np.median(cycles), nan_ok=True)
