"""Judgements over minutes and hours: of silences, of watched checkpoints, and of random histories with known truth.
`benchmarks.status_rules` runs more histories and compares Burrow's rules."""

import tracemalloc
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import pytest

from benchmarks._histories import KINDS, Truth, histories
from benchmarks._judgements import RULES, scores, statuses
from kctl.rows.columns import Names, PartitionColumns
from kctl.status import Assessment, Assessor, Owner, Status, StatusRules
from kctl.status.assessments import of_groups
from kctl.status.observations import WINDOW, Observations
from kctl.status.owners import UNSEEN, Owners
from tests.partitions import Row, RowAssessor

STATES = ("paused", "throttled", "elsewhere")
TEN_MINUTES = 600


def test_silence_counts_from_when_a_worker_may_read_again() -> None:
    assessor = RowAssessor()

    def statuses(second: int, *states: str) -> list[Status]:
        rows = [Row("orders", n, 0, 100, 100, 101 + second, None, "worker-0", 1, 0.0) for n in range(len(states))]
        found = assessor.assess(
            rows,
            lambda row: Owner("worker-0", states[row.partition], last_batch_seconds=2.0),
            float(second),
            float(second),
        )
        return [each.status for each in found]

    for second in range(0, TEN_MINUTES, 5):
        statuses(second, *STATES)
    after = [statuses(TEN_MINUTES + second, *["running"] * len(STATES)) for second in range(0, 90, 5)]

    assert Status.STALLED not in {status for found in after[:12] for status in found}
    assert set(after[-1]) == {Status.STALLED}


HOUR = 3600
STEP = 20


class Query(NamedTuple):
    interval: int  # seconds between reads of its checkpoint
    batch: int  # seconds that each batch takes
    plans: bool  # whether reads also see batches that are planned but not committed
    killed_at: int = 10 * HOUR

    def seen(self, partition: int, second: int) -> tuple[Row, Owner]:
        read_at = second // self.interval * self.interval
        began_at = min(read_at, self.killed_at) // self.batch * self.batch
        end = 10 * second + 50  # messages arrive all the time
        row = Row("orders", partition, 0, 10 * began_at, None, end, None, None, None, second - read_at)
        running = float(read_at - began_at) if self.plans else None
        return row, Owner("the query", UNSEEN, None, None, running, interval_seconds=self.interval)


RUNNING = [Query(*each) for each in product((60, 900, 3600), (10, 540), (True, False))]
KILLED = {10: 200, 60: 370, 300: 1300}  # a killed query's interval, and the seconds until it is known as stopped


@cache
def of_queries() -> dict[Query, list[str]]:
    found = {query: list[str]() for query in (*RUNNING, *(Query(each, 10, False, 2 * HOUR) for each in KILLED))}
    assessor = RowAssessor()
    for second in range(0, 3 * HOUR, STEP):
        rows, owners = zip(*(query.seen(number, second) for number, query in enumerate(found)), strict=True)
        assessed = assessor.assess(list(rows), _of(owners), float(second), float(second))
        for query, each in zip(found, assessed, strict=True):
            found[query].append(each.status.value)
    return found


def _of(owners: Sequence[Owner]) -> Callable[[Row], Owner]:
    return lambda row: owners[row.partition]


@pytest.mark.parametrize("query", RUNNING)
def test_a_query_that_runs_is_never_stopped_however_rarely_its_checkpoint_is_read(query: Query) -> None:
    found = of_queries()[query]

    assert set(found) <= {"ok", "unknown"}
    assert "unknown" not in found[(3 * query.interval + query.batch) // STEP :]


@pytest.mark.parametrize(("interval", "within"), KILLED.items())
def test_a_query_that_was_killed_between_batches_is_stopped_after_a_few_readings(interval: int, within: int) -> None:
    query = Query(interval, 10, False, 2 * HOUR)

    assert STEP * of_queries()[query].index("stopped") - query.killed_at <= within


@pytest.mark.shows("false and missed alarms of each rule are below 1 % over random histories")
@pytest.mark.timeout(120)
def test_alarms_are_false_or_missing_in_less_than_one_poll_of_a_hundred() -> None:
    some = [history for history in histories(28) if history.poll_seconds > 5]  # the benchmark runs the others

    found = scores(some, statuses)

    assert {history.kind for history in some} == set(KINDS)
    assert {second.truth for history in some for second in history.seconds} == set(Truth)
    assert found.keys() == {*RULES, "any"}
    for rule, score in found.items():
        assert min(score.well, score.ill) > 1000, rule
        assert max(score.false_share, score.missed_share) < 0.01, (rule, score.by_history.most_common(3))


CLIENTS = Owner(None, None, None, members=1)


def assessed(assessor: Assessor, names: Names, now: float, waiting: int) -> dict[str, Assessment]:
    committed = np.full(len(names), 10)
    at, start = np.full(len(names), now), np.zeros(len(names), np.int64)
    columns = PartitionColumns(names, now, at, start, committed, committed, committed + waiting)
    found = assessor.assess(columns, Owners.of([CLIENTS] * len(names)), now)
    return dict(zip(names.groups, of_groups(found, names.begins, names.name), strict=True))


def orders(*groups: str) -> Names:
    return Names(dict.fromkeys(groups, (("orders", 0), ("orders", 1))))


def test_a_group_without_partitions_is_unknown() -> None:
    names = Names({"a": (), "b": (("orders", 0),), "c": ()})
    found = assessed(Assessor(StatusRules(), lambda _: 0), names, 0.0, 0)
    assert [each.status for each in found.values()] == [Status.UNKNOWN, Status.OK, Status.UNKNOWN]
    assert found["a"].reason == "no partition is known"


def test_settings_that_change_forget_what_was_seen_of_the_groups_that_they_concern() -> None:
    assessor, names = Assessor(StatusRules(), lambda _: 0), orders("a", "b")
    for second in range(100):
        assessed(assessor, names, float(second), 0)

    assessor.adopt(StatusRules(), lambda group: int(group == "b"))
    found = assessed(assessor, names, 100.0, 0)
    assert {group: each.status for group, each in found.items()} == {"a": Status.IDLE, "b": Status.OK}

    assessor.adopt(StatusRules(window_seconds=30.0), lambda group: int(group == "b"))
    found = assessed(assessor, names, 101.0, 1)
    assert [each.growth_per_second for each in found.values()] == [None, None]


@pytest.mark.shows("what is seen and found of a partition takes at most 600 bytes, however long it is watched")
def test_a_partition_takes_no_more_memory_the_longer_it_is_watched() -> None:
    partitions = 5000
    assessor, names = Assessor(StatusRules(), lambda _: 0), Names({"a": [("orders", n) for n in range(partitions)]})
    tracemalloc.start()
    try:
        bytes_used = []
        for second in range(66):
            columns = behind(names, float(second))
            found = assessor.assess(columns, Owners.of([CLIENTS] * partitions), float(second))
            del columns, found
            bytes_used.append(tracemalloc.get_traced_memory()[0] / partitions)
    finally:
        tracemalloc.stop()

    assert max(bytes_used) < 600
    assert bytes_used[-1] < 1.05 * bytes_used[1]


def behind(names: Names, now: float) -> PartitionColumns:
    committed, size = np.full(len(names), int(now)), len(names)
    return PartitionColumns(names, now, np.full(size, now), committed * 0, committed, committed, committed * 2 + 100)


SIZE = 5
WEEK_SECONDS = 7 * 86_400.0


def seen(times: Sequence[float], committed_each: int = 1) -> Observations:
    observations, rows = Observations(SIZE), np.arange(SIZE)
    for number, at in enumerate(times):
        committed = rows + number // committed_each
        times_of_rows = np.subtract(at, rows, dtype=np.float64)
        observations.add(
            rows, times_of_rows, committed, rows + 2 * number, np.zeros(SIZE, np.bool_), np.zeros(SIZE, np.bool_)
        )
    return observations


def ages(observations: Observations) -> list[float]:
    times = observations.at[: observations.count[0], 0]
    return [float(times[-1] - each) for each in times]


def test_an_hour_fits_beside_the_last_seconds_in_256_bytes() -> None:
    found = ages(seen([float(second) for second in range(3601)]))

    assert len(found) == WINDOW
    assert (found[0], found[-1]) == (3600.0, 0.0)
    assert found[-2] <= 6.0
    assert all(older <= 2.5 * newer + 10 for older, newer in pairwise(found)), found

    rows = Observations(SIZE)
    assert (rows.at.nbytes + rows.committed.nbytes + rows.end.nbytes) / SIZE == 256


def test_a_row_that_shows_what_a_commit_left_over_outlives_those_after_it() -> None:
    observations = seen([float(second) for second in range(121)], committed_each=10)

    kept = slice(observations.count[0])
    rows = zip(observations.at[kept, 0].tolist(), observations.committed[kept, 0].tolist(), strict=True)
    first = {committed: at for at, committed in reversed([*rows])}
    assert len(first) > WINDOW / 2
    assert first == {committed: 10.0 * committed for committed in first}


def test_times_stay_exact_however_long_it_runs() -> None:
    for number in (1, 400):
        at = 1000.001 + number * WEEK_SECONDS
        observations = seen([at, at + 1, at + 2])

        for back in range(3):
            since = np.subtract(at + 2 - back, np.arange(SIZE), dtype=np.float64)
            row = observations.held(np.arange(SIZE), since)
            assert observations.at[row, np.arange(SIZE)].tolist() == (at - np.arange(SIZE) + min(2 - back, 1)).tolist()
