from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kctl.status.observations import WINDOW, Observations

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


def test_an_hour_fits_beside_the_last_seconds() -> None:
    found = ages(seen([float(second) for second in range(3601)]))

    assert len(found) == WINDOW
    assert (found[0], found[-1]) == (3600.0, 0.0)
    assert found[-2] <= 6.0
    assert all(older <= 2.5 * newer + 10 for older, newer in pairwise(found)), found


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


def test_what_is_seen_takes_256_bytes_of_a_partition_whose_offsets_are_short() -> None:
    rows = Observations(SIZE)
    assert (rows.at.nbytes + rows.committed.nbytes + rows.end.nbytes) / SIZE == 256
