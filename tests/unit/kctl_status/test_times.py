"""Times as numbers: the same rows whether they are short or not."""

from __future__ import annotations

import numpy as np
import pytest

from kctl.status.history import ABSENT, History, SeenOffsets
from kctl.status.observations import Reals
from kctl.status.times import TimeCodes

SIZE = 5


def seen(at: Reals, rounds: int) -> SeenOffsets:
    committed = np.arange(SIZE) + 3 * (rounds // (1 + np.arange(SIZE)))
    return SeenOffsets(at, committed, committed + rounds % 7, np.full(SIZE, ABSENT))


def watched(rounds: int, most: int, late: float = 0.0) -> History:
    history = History(SIZE)
    history.rows.times = TimeCodes(most)
    for number in range(rounds):
        at = np.full(SIZE, 10.1 * number) - late * np.arange(SIZE)
        history.add(seen(at, number), np.ones(SIZE, np.bool_), np.full(SIZE, 300.0), np.zeros(SIZE, np.int64))
    return history


def rows_of(history: History) -> list[list[tuple[float, int, int]]]:
    every = [(row, number) for row in range(SIZE) for number in range(int(history.rows.count[row]))]
    rows, numbers = (np.array(each, np.intp) for each in zip(*every, strict=True))
    found = zip(*(column.tolist() for column in history.rows.of(rows, numbers)), strict=True)
    kept: list[list[tuple[float, int, int]]] = [[] for _ in range(SIZE)]
    for (row, _), each in zip(every, found, strict=True):
        kept[row].append(each)
    return kept


def test_times_are_given_back_as_they_were() -> None:
    times = TimeCodes()

    assert times.add(np.array([0.1, 0.1]))
    assert times.add(np.array([0.3, 0.2, 0.1]))

    numbers = times.at_or_before(np.array([0.3, 0.2, 0.1, 0.25, 0.0, np.nan]))
    assert numbers.dtype == np.uint16
    assert times.of(numbers).tolist() == [0.3, 0.2, 0.1, 0.2, -np.inf, -np.inf]


@pytest.mark.parametrize("late", [0.0, 33.3])
def test_times_too_many_for_short_numbers_are_kept_as_they_are(late: float) -> None:
    wide, short = watched(100, most=10, late=late), watched(100, most=1 << 16)

    assert wide.rows.times.kind is np.float64
    if not late:
        assert rows_of(wide) == rows_of(short)
    ats = [[at for at, _, _ in rows] for rows in rows_of(wide)]
    assert all(each[-1] == pytest.approx(99 * 10.1 - late * row) for row, each in enumerate(ats))
    assert all(each == sorted(each) for each in ats)


def test_what_is_seen_takes_ten_bytes_a_row_where_offsets_are_short() -> None:
    history = watched(60, most=1 << 16)

    assert sum(np.dtype(kind).itemsize for kind in history.rows._tiers[0].kinds) == 10
