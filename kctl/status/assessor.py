"""The assessor of a fleet's partitions: rows as its master has them, with owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from kctl.rows.partitions import PartitionRow
from kctl.status.assessments import Assessments, of_groups
from kctl.status.columns import ColumnAssessor, Reported
from kctl.status.history import ABSENT
from kctl.status.judgements import NUMBERS
from kctl.status.observations import Ints, Reals
from kctl.status.owners import Owner, Owners
from kctl.status.rules import StatusRules
from kctl.status.words import Assessment, Status


class Assessor:
    """Assesses rows. One thread at a time. What is not among the rows any more is forgotten."""

    def __init__(self, rules: StatusRules) -> None:
        self._allowed_lag = rules.allowed_lag
        self._columns = ColumnAssessor(rules)
        self._places: dict[tuple[str, int], int] = {}

    def assess(
        self, rows: Sequence[PartitionRow], owner_of: Callable[[PartitionRow], Owner], now: float, now_unix: float
    ) -> Assessments:
        """One assessment per row, in order. `now` is monotonic seconds, `now_unix` the same moment as Unix seconds."""
        keys = [row[:2] for row in rows]
        if keys != [*self._places]:
            self._columns.choose(np.array([self._places.get(key, -1) for key in keys], np.intp))
            self._places = {key: place for place, key in enumerate(keys)}
        allowed = np.full(len(rows), self._allowed_lag, np.int64)
        return self._columns.assess(_reported(rows, now), _owners(map(owner_of, rows)), allowed, now, now_unix)


def of_group(
    rows: Sequence[PartitionRow], assessments: Assessments, numbers: Sequence[int] | None = None
) -> Assessment:
    """Returns the assessment of the group, which is as well as its worst partition; of the partitions with these
    `numbers` alone."""
    if numbers is not None:
        rows, assessments = [rows[n] for n in numbers], assessments.chosen(np.array(numbers, np.intp))
    return of_groups(assessments, [0, len(rows)], lambda row: f"{rows[row].topic}-{rows[row].partition}")[0]


def longest_lag_seconds(assessments: Assessments, besides: Status = Status.ELSEWHERE) -> float | None:
    """Returns the greatest time lag of partitions that this host judges, besides those of a status; None if none is
    known, or only that of partitions where nothing waits."""
    is_own = assessments.status != NUMBERS[Status.ELSEWHERE]
    seconds = assessments.column("lag_seconds")[is_own & (assessments.status != NUMBERS[besides])]
    known = seconds[~np.isnan(seconds)]
    if len(known) == len(seconds) > 0 or known.max(initial=0.0) > 0.0:
        return float(known.max())
    return None if is_own.any() or not len(is_own) else 0.0


def longest_cycle_seconds(assessments: Assessments) -> float:
    """Returns the longest time from one commit to the next that is usual for a partition."""
    return float(assessments.column("cycle_seconds").max(initial=0.0))


def _reported(rows: Sequence[PartitionRow], now: float) -> Reported:
    return Reported(
        at=now - _reals(row.age_seconds for row in rows),
        start=ints(row.start for row in rows),
        committed=ints(row.committed for row in rows),
        lag_from=ints(row.lag_from for row in rows),
        end=ints(row.end for row in rows),
        timestamp=_reals(row.last_timestamp for row in rows),
        position=ints(row.position for row in rows),
        stored_messages=ints(row.stored_messages for row in rows),
        stored_seconds=_reals(row.stored_seconds for row in rows),
    )


def ints(values: Iterable[int | None]) -> Ints:
    """As a column of offsets."""
    return np.array([ABSENT if value is None else value for value in values], np.int64)


def _reals(values: Iterable[float | None]) -> Reals:
    return np.array(list[Any](values), np.float64)


def _owners(of_rows: Iterable[Owner]) -> Owners:
    """Returns the owners by the column. Workers have many partitions, and few of their owners are different objects."""
    numbers: dict[int, int] = {}
    owners: list[Owner] = []
    found = []
    for owner in of_rows:
        number = numbers.get(id(owner))
        if number is None:
            number = numbers[id(owner)] = len(owners)
            owners.append(owner)
        found.append(number)
    return Owners(owners, np.array(found, np.intp))
