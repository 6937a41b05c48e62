"""Times of observations: milliseconds in four bytes, for as long as a master runs."""

from __future__ import annotations

import numpy as np

from kctl.rows.columns import ABSENT
from kctl.status.history import History, SeenOffsets

WEEK_SECONDS = 7 * 86_400.0
SIZE = 5


def add(history: History, at: float, number: int) -> None:
    committed = np.arange(SIZE) + number
    offsets = SeenOffsets(np.full(SIZE, at) - np.arange(SIZE), committed, committed + 7, np.full(SIZE, ABSENT))
    history.add(offsets, np.ones(SIZE, np.bool_), np.full(SIZE, 300.0), np.zeros(SIZE, np.int64))


def test_times_are_given_back_to_the_millisecond_however_long_it_runs() -> None:
    history = History(SIZE)
    rows = np.arange(SIZE)

    for number in range(400):
        at = 1000.001 + number * WEEK_SECONDS + number / 1000
        for seconds in range(3):
            add(history, at + seconds, 3 * number + seconds)

        for back in range(3):
            found, committed, _ = history.rows.of(rows, history.rows.held(rows, np.full(SIZE, at - rows + 2 - back)))
            assert np.abs(found - (at - rows + min(2 - back, 1))).max() < 0.0011
            assert committed.tolist() == (rows + 3 * number + min(2 - back, 1)).tolist()


def test_what_is_seen_takes_twelve_bytes_a_row_where_offsets_are_short() -> None:
    assert sum(np.dtype(kind).itemsize for kind in History(SIZE).rows._tiers[0].kinds) == 12
