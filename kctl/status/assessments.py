"""Assessments of many partitions, stored in columns. Also assesses the groups of these partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import nan
from typing import overload

import numpy as np
from numpy.typing import NDArray

from kctl.rows.columns import Reals, Rows
from kctl.status.judgements import Held, Judgements
from kctl.status.owners import Owners
from kctl.status.words import NUMBERS, STATUSES, Assessment, Status
from kctl_agent.rpc.messages import number_of

_NAMED = 3
_ALL_WELL = NUMBERS[Status.OK]  # statuses above this number are trouble or unknown
_HELD = {Held.NO: "", Held.NOT_YET_OVER: "not yet over: ", Held.NOT_SEEN_TO_BE_OVER: "not seen to be over: "}


@dataclass(frozen=True, slots=True, eq=False)
class AssessmentColumns:
    """The assessments of many partitions, one column per field. Immutable. NaN means unknown."""

    status: NDArray[np.int8]  # indices into `STATUSES`
    held: NDArray[np.int8]
    judgements: Judgements
    owners: Owners
    lag_seconds: Reals
    growth_per_second: Reals
    catchup_seconds: Reals
    oldest_unhandled_seconds: Reals
    cycle_seconds: Reals


class Assessments(Sequence[Assessment]):
    """The assessments of some partitions. Creates an `Assessment`, with its reason in words, on access."""

    __slots__ = ("_columns", "_rows")

    def __init__(self, columns: AssessmentColumns, rows: range | Rows | None = None) -> None:
        self._columns = columns
        self._rows = range(len(columns.status)) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Assessment: ...
    @overload
    def __getitem__(self, index: slice) -> Assessments: ...
    def __getitem__(self, index: int | slice) -> Assessment | Assessments:
        if isinstance(index, slice):
            assert index.step is None
            return Assessments(self._columns, self._rows[index])
        return self._at(int(self._rows[index]))

    def chosen(self, rows: Rows) -> Assessments:
        return Assessments(self._columns, np.arange(len(self))[rows])

    def column(self, name: str) -> Reals:
        found: Reals = getattr(self._columns, name)[self._places]
        return found

    @property
    def status(self) -> NDArray[np.int8]:
        found: NDArray[np.int8] = self._columns.status[self._places]
        return found

    @property
    def _places(self) -> slice | Rows:
        return slice(self._rows.start, self._rows.stop) if isinstance(self._rows, range) else self._rows

    def statuses(self) -> list[Status]:
        return [STATUSES[number] for number in self.status.tolist()]

    def reason_of_all(self, rows: Rows) -> str:
        """Returns the reason of the first row. Numbers of messages in the reason are sums over all `rows`."""
        places = rows + self._rows.start if isinstance(self._rows, range) else self._rows[rows]
        return self._reason(int(places[0]), places)

    def _reason(self, row: int, rows: Rows | None = None) -> str:
        columns = self._columns
        return _HELD[Held(int(columns.held[row]))] + columns.judgements.reason(row, columns.owners[row], rows)

    def _at(self, row: int) -> Assessment:
        columns = self._columns
        return Assessment(
            STATUSES[columns.status[row]],
            self._reason(row),
            _known(columns.lag_seconds[row]),
            _known(columns.growth_per_second[row]),
            _known(columns.catchup_seconds[row]),
            _known(columns.oldest_unhandled_seconds[row]),
        )


_NOTHING = np.empty(0)
NOT_ASSESSED = Assessments(
    AssessmentColumns(
        *(np.empty(0, np.int8), np.empty(0, np.int8)),
        *(Judgements(np.empty(0, np.int64)), Owners([], np.empty(0, np.intp))),
        *(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING),
    )
)


def _known(value: float) -> float | None:
    return None if value != value else float(value)


def of_groups(assessments: Assessments, begins: Sequence[int], name_of: Callable[[int], str]) -> list[Assessment]:
    """Returns an assessment of each group, with the status of the group's worst partition.

    Group N has the partitions from `begins[N]` to `begins[N + 1]`. `name_of` returns a partition's name by its index in
    `assessments`.
    """
    bounds = np.asarray(begins, np.intp)
    has_any = np.flatnonzero(bounds[1:] > bounds[:-1])
    found = [Assessment(Status.UNKNOWN, "no partition is known")] * (len(bounds) - 1)
    if not len(has_any):
        return found
    starts = bounds[has_any]
    statuses, growth = assessments.status, assessments.column("growth_per_second")
    is_growth_known = np.logical_or.reduceat(~np.isnan(growth), starts)
    idle = np.add.reduceat(statuses == NUMBERS[Status.IDLE], starts, dtype=np.intp)
    elsewhere = np.add.reduceat(statuses == NUMBERS[Status.ELSEWHERE], starts, dtype=np.intp)
    columns = (
        np.maximum.reduceat(statuses, starts),
        _greatest(assessments.column("lag_seconds"), starts),
        np.where(is_growth_known, np.add.reduceat(np.nan_to_num(growth), starts), np.nan),
        np.maximum.reduceat(assessments.column("catchup_seconds"), starts),
        _greatest(assessments.column("oldest_unhandled_seconds"), starts),
    )
    worsts, *seconds = [column.tolist() for column in columns]
    counts = zip(idle.tolist(), elsewhere.tolist(), strict=True)
    for group, few, worst, values in zip(has_any.tolist(), counts, worsts, zip(*seconds, strict=True), strict=True):
        begin, end = begins[group], begins[group + 1]
        if worst <= _ALL_WELL:
            reason = all_well(few[0], end - begin - sum(few), few[1])
        else:
            reason = _reason(assessments[begin:end], STATUSES[worst], begin, name_of)
        found[group] = Assessment(STATUSES[worst], reason, *[None if value != value else value for value in values])
    return found


def _greatest(column: Reals, starts: NDArray[np.intp]) -> Reals:
    known: Reals = np.fmax.reduceat(column, starts)  # ignores unknown values
    return np.where(known > 0.0, known, np.maximum.reduceat(column, starts))


def judged_lag_seconds(assessments: Assessments) -> tuple[float | None, float]:
    """Returns the greatest time lag (None if any is unknown) and the median of `cycle_seconds`. Considers only
    partitions that this host judges and that are not paused."""
    others = NUMBERS[Status.ELSEWHERE], NUMBERS[Status.PAUSED]
    judged = np.flatnonzero(~np.isin(assessments.status, others))
    lags, cycles = (assessments.column(name)[judged] for name in ("lag_seconds", "cycle_seconds"))
    # A median, because a partition with few messages learns long silences.
    return _known(lags.max(initial=0.0)), _median(cycles) if len(cycles) else 0.0


def _median(values: Reals) -> float:
    # `np.median` would import masked arrays, which take 1.6 MiB.
    middle = [(len(values) - 1) // 2, len(values) // 2]
    return nan if np.isnan(values).any() else float(np.partition(values, middle)[middle].mean())


def longest_lag_seconds(assessments: Assessments) -> float | None:
    """Returns the greatest known time lag of the partitions that this host judges, or 0 if other hosts judge all
    partitions. Returns None if there are no partitions, or if a lag is unknown and no known lag is above 0."""
    is_own = assessments.status != NUMBERS[Status.ELSEWHERE]
    seconds = assessments.column("lag_seconds")[is_own]
    known = seconds[~np.isnan(seconds)]
    if len(known) == len(seconds) > 0 or known.max(initial=0.0) > 0.0:
        return float(known.max())
    return None if is_own.any() or not len(is_own) else 0.0


@lru_cache(1000)
def all_well(idle: int, ok: int, elsewhere: int = 0) -> str:
    """Returns the reason of a healthy group, such as `3 partitions idle, 5 ok`."""
    counts = (idle, Status.IDLE), (ok, Status.OK), (elsewhere, Status.ELSEWHERE)
    first, *more = [(count, status.value) for count, status in counts if count]
    return ", ".join([f"{number_of(first[0], 'partition')} {first[1]}", *(f"{count} {word}" for count, word in more)])


def _reason(part: Assessments, worst: Status, begin: int, name_of: Callable[[int], str]) -> str:
    such = np.flatnonzero(part.status == NUMBERS[worst])
    names = ", ".join(name_of(begin + row) for row in such[:_NAMED].tolist())
    more = f" and {len(such) - _NAMED} more" if len(such) > _NAMED else ""
    return f"{len(such)} of {len(part)} partitions {worst.value}: {names}{more}; {part.reason_of_all(such)}"
