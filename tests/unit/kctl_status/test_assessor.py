from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from kctl.rows.columns import Names, PartitionColumns
from kctl.status import Assessment, Assessor, Owner, Status, StatusRules
from kctl.status.assessments import of_groups
from kctl.status.observations import WINDOW, Observations
from kctl.status.owners import Owners

CLIENTS = Owner(None, None, None, members=1)


def assessed(assessor: Assessor, names: Names, now: float, waiting: int) -> dict[str, Assessment]:
    """Each partition has committed 10 and has `waiting` messages left."""
    committed = np.full(len(names), 10)
    at, start = np.full(len(names), now), np.zeros(len(names), np.int64)
    columns = PartitionColumns(names, now, at, start, committed, committed, committed + waiting)
    found = assessor.assess(columns, Owners.of([CLIENTS] * len(names)), now)
    return dict(zip(names.groups, of_groups(found, names.begins, names.name), strict=True))


def orders(*groups: str) -> Names:
    return Names(dict.fromkeys(groups, (("orders", 0), ("orders", 1))))


def test_what_was_seen_of_a_group_stays_while_others_come_and_go_or_have_no_partitions() -> None:
    assessor = Assessor(StatusRules(), lambda _: 0)
    for second, names in enumerate([orders("a", "c")] * 50 + [orders("b", "c")] * 50):
        found = assessed(assessor, names, float(second), 0)

    assert {group: each.status for group, each in found.items()} == {"b": Status.OK, "c": Status.IDLE}
    assert found["c"].reason == "2 partitions idle"

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
