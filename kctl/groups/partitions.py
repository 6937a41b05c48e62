"""The partitions of all groups of a cluster, by the column; a row is made of them when it is asked for. Pure.

There may be a hundred thousand: as objects they would cost more, in each cycle, than all that is found out about them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, groupby, pairwise
from operator import itemgetter
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from kctl.rows.lag import LagTotals
from kctl.rows.partitions import PartitionRow, ResetPolicy
from kctl.status.columns import Reported
from kctl.status.history import ABSENT
from kctl.status.observations import Bools, Ints, Rows
from kctl_agent.replies.topic_partition import TopicPartition

Partition = tuple[str, int]


class Names:
    """The names of partitions by group, in order. Immutable."""

    def __init__(self, groups: Mapping[str, Sequence[Partition]]) -> None:
        """`groups` has the sorted partitions of each group."""
        self.groups = tuple(groups)
        self._of_groups = tuple(groups.values())
        self.begins = [0, *accumulate(map(len, self._of_groups))]
        """Indices at which the partitions of each group begin, and where all end."""
        self.keys: list[Partition] = list(chain.from_iterable(self._of_groups))
        runs = [
            [(topic, sum(1 for _ in keys)) for topic, keys in groupby(each, itemgetter(0))] for each in self._of_groups
        ]
        self.topics = [topic for each in runs for topic, _ in each]
        """Topics of the groups, one group after the other."""
        self.topic_begins = [0, *accumulate(count for each in runs for _, count in each)]
        self.topic_bounds = [0, *accumulate(map(len, runs))]
        """Indices at which the `topics` of each group begin, and where all end."""
        self._sizes: Rows = np.array([*map(len, self._of_groups)], np.intp)

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, row: int) -> str:
        topic, partition = self.keys[row]
        return f"{topic}-{partition}"

    def is_of(self, groups: Mapping[str, Sequence[Partition]]) -> bool:
        """Whether these are the same objects; then nothing needs to be compared."""
        return (*groups,) == self.groups and all(map(_is_same, self._of_groups, groups.values()))

    def moved_from(self, old: Names) -> Rows:
        """Returns where each of these partitions stood among the `old` ones; -1: nowhere."""
        places = dict(zip(old.groups, zip(old._of_groups, old.begins, strict=False), strict=True))
        found = np.full(len(self), -1, np.intp)
        for name, keys, begin in zip(self.groups, self._of_groups, self.begins, strict=False):
            old_keys, old_begin = places.get(name, ((), 0))
            if old_keys is keys:
                found[begin : begin + len(keys)] = np.arange(old_begin, old_begin + len(keys))
            elif old_keys:
                known = dict(zip(old_keys, range(old_begin, old_begin + len(old_keys)), strict=True))
                found[begin : begin + len(keys)] = [known.get(key, -1) for key in keys]
        return found

    def only(self, is_shown: Bools) -> Names:
        """Returns the names without the partitions that are not shown."""
        shown = is_shown.tolist()
        return Names(
            {
                name: keys if all(part := shown[begin : begin + len(keys)]) else tuple(compress(keys, part))
                for name, keys, begin in zip(self.groups, self._of_groups, self.begins, strict=False)
            }
        )

    def spread(self, of_groups: NDArray[Any]) -> NDArray[Any]:
        """Spreads a value of each group over its partitions."""
        return np.repeat(of_groups, self._sizes)


def _is_same(one: object, other: object) -> bool:
    return one is other


@dataclass(frozen=True, slots=True, eq=False)
class PartitionColumns:
    """The partitions of one collection, by the column. An offset that is not known is `ABSENT`."""

    names: Names
    now: float
    """Monotonic seconds, as `reported.at`."""
    reported: Reported
    share_lag: Ints | None = None
    """The lag of share groups; None: there are none."""

    def only(self, names: Names, is_shown: Bools) -> PartitionColumns:
        """Returns the partitions that are shown, by their names."""
        reported = Reported._make(None if each is None else each[is_shown] for each in self.reported)
        return PartitionColumns(names, self.now, reported, None if self.share_lag is None else self.share_lag[is_shown])

    def rows(self) -> list[PartitionRows]:
        """Returns the rows of each group."""
        bounds = np.array(self.names.begins, np.intp)
        reported_at = np.full(len(bounds) - 1, np.nan)
        has_any = bounds[1:] > bounds[:-1]
        if has_any.any():
            reported_at[has_any] = np.minimum.reduceat(self.reported.at, bounds[:-1][has_any])
        each = zip(pairwise(self.names.begins), (self.now - reported_at).tolist(), strict=True)
        return [PartitionRows(self, begin, end, age) for (begin, end), age in each]

    def all(self) -> PartitionRows:
        return PartitionRows(self, 0, len(self.names), math.nan)

    def lags(self) -> list[LagTotals]:
        """Returns the sums of each group."""
        names, lag = self.names, self.reported.lag
        if not len(lag):
            return [LagTotals() for _ in names.groups]
        is_known = lag != ABSENT
        begins = np.array(names.topic_begins[:-1], np.intp)
        counts = np.add.reduceat(is_known, begins, dtype=np.intp).tolist()
        sums = np.add.reduceat(np.where(is_known, lag, 0), begins).tolist()
        of_topics = [total if count else None for total, count in zip(sums, counts, strict=True)]
        unknown = np.flatnonzero(~is_known)
        gaps = np.searchsorted(unknown, names.begins).tolist() if len(unknown) else [0] * len(names.begins)
        totals = []
        for (first, last), (gap, next_gap) in zip(pairwise(names.topic_bounds), pairwise(gaps), strict=True):
            topics = dict(zip(names.topics[first:last], of_topics[first:last], strict=True))
            known = [total for total in topics.values() if total is not None]
            missing = unknown[gap:next_gap].tolist() if gap < next_gap else ()
            of_group = tuple(TopicPartition(*names.keys[row]) for row in missing)
            totals.append(LagTotals(sum(known) if known else None, of_group, topics))
        return totals

    def row(self, number: int) -> PartitionRow:
        reported = self.reported
        share_lag = None if self.share_lag is None else _known(self.share_lag[number])
        return PartitionRow(
            *self.names.keys[number],
            start=_known(reported.start[number]),
            committed=_known(reported.committed[number]),
            position=None,
            end=_known(reported.end[number]),
            last_timestamp=None,
            worker=None,
            generation=None,
            age_seconds=float(self.now - reported.at[number]),
            reset=ResetPolicy.NONE,
            share_lag=share_lag,
        )


def _known(offset: int) -> int | None:
    return None if offset == ABSENT else int(offset)


class PartitionRows(Sequence[PartitionRow]):
    """The rows of one group's partitions. Immutable."""

    __slots__ = ("_begin", "_columns", "_end", "age_seconds")

    def __init__(self, columns: PartitionColumns, begin: int, end: int, age_seconds: float) -> None:
        self._columns, self._begin, self._end = columns, begin, end
        self.age_seconds: Final = age_seconds
        """Age of the oldest offsets; NaN where there are none."""

    def __len__(self) -> int:
        return self._end - self._begin

    @overload
    def __getitem__(self, index: int) -> PartitionRow: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PartitionRow]: ...
    def __getitem__(self, index: int | slice) -> PartitionRow | Sequence[PartitionRow]:
        rows = range(self._begin, self._end)[index]
        return self._columns.row(rows) if isinstance(rows, int) else [self._columns.row(row) for row in rows]

    def names(self) -> list[Partition]:
        return self._columns.names.keys[self._begin : self._end]

    @property
    def share_lag(self) -> Ints | None:
        share_lag = self._columns.share_lag
        return None if share_lag is None else share_lag[self._begin : self._end]

    @property
    def columns(self) -> Reported:
        """Returns the rows by the column."""
        return Reported._make(
            None if each is None else each[self._begin : self._end] for each in self._columns.reported
        )
