"""Keeps the partitions of groups in columns, and makes rows on demand. Pure.

Creating 100,000 row objects takes longer than all computations with their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, chain, compress, groupby, pairwise
from operator import is_, itemgetter
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kctl.rows.partitions import LagTotals, PartitionRow, ResetPolicy
from kctl_agent.replies.fields import TopicPartition
from kctl_agent.rpc.wire import JsonObject

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Rows = NDArray[np.intp]
Partition = tuple[str, int]
ABSENT = int(np.iinfo(np.int64).min)  # unknown offset, or other number of a partition
_FIELDS = PartitionRow.__struct_fields__
_RENAMED = {"current_offset": "committed", "kafka_max_offset": "end", "remaining_count": "lag"}
"""Field -> the column with its values, if the names differ."""


class Names:
    """The sorted partitions of each group: they name the rows of `PartitionColumns`. Immutable."""

    def __init__(self, groups: Mapping[str, Sequence[Partition]]) -> None:
        self.groups = tuple(groups)
        self.of_groups = tuple(groups.values())
        self.begins = [0, *accumulate(map(len, self.of_groups))]
        self.keys: list[Partition] = list(chain.from_iterable(self.of_groups))
        runs = [
            [(topic, sum(1 for _ in keys)) for topic, keys in groupby(each, itemgetter(0))] for each in self.of_groups
        ]
        self.topics = [topic for each in runs for topic, _ in each]
        """Topics of the groups, one group after the other."""
        self.topic_begins = [0, *accumulate(count for each in runs for _, count in each)]
        self.topic_bounds = [0, *accumulate(map(len, runs))]
        """Indices at which the `topics` of each group begin, and where all end."""
        self._sizes: Rows = np.array([*map(len, self.of_groups)], np.intp)

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, row: int) -> str:
        topic, partition = self.keys[row]
        return f"{topic}-{partition}"

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Names)
            and (self.groups, self.begins, self.keys) == (other.groups, other.begins, other.keys)
        )

    __hash__ = None  # type: ignore[assignment]

    def of_each(self) -> Iterator[tuple[str, Partition]]:
        return zip(self.spread(np.array(self.groups, np.object_)).tolist(), self.keys, strict=True)

    def is_of(self, groups: Mapping[str, Sequence[Partition]]) -> bool:
        """Whether these names were made from the sequences in `groups`, compared by identity."""
        return (*groups,) == self.groups and all(map(is_, self.of_groups, groups.values()))

    def moved_from(self, old: Names) -> Rows:
        """Returns each partition's index in `old`, or -1 if it is not in `old`."""
        places = dict(zip(old.groups, zip(old.of_groups, old.begins, strict=False), strict=True))
        found = np.full(len(self), -1, np.intp)
        for name, keys, begin in zip(self.groups, self.of_groups, self.begins, strict=False):
            old_keys, old_begin = places.get(name, ((), 0))
            if old_keys is keys:
                found[begin : begin + len(keys)] = np.arange(old_begin, old_begin + len(keys))
            elif old_keys:
                known = dict(zip(old_keys, range(old_begin, old_begin + len(old_keys)), strict=True))
                found[begin : begin + len(keys)] = [known.get(key, -1) for key in keys]
        return found

    def only(self, is_shown: Bools) -> Names:
        shown = is_shown.tolist()
        return Names(
            {
                name: keys if all(part := shown[begin : begin + len(keys)]) else tuple(compress(keys, part))
                for name, keys, begin in zip(self.groups, self.of_groups, self.begins, strict=False)
            }
        )

    def spread(self, of_groups: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(of_groups, self._sizes)


def _no_offsets() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PartitionColumns:
    """Values of partitions, a column per field. Unknown values are `ABSENT`, NaN or None. Unknown columns are None."""

    names: Names = field(default_factory=lambda: Names({"": ()}))
    now: float = 0.0
    """Monotonic seconds, as `at`."""
    at: Reals = field(default_factory=lambda: np.empty(0))
    start: Ints = field(default_factory=_no_offsets)
    committed: Ints = field(default_factory=_no_offsets)
    lag_from: Ints = field(default_factory=_no_offsets)
    """Lag is counted from this offset."""
    end: Ints = field(default_factory=_no_offsets)
    share_lag: Ints | None = None
    """The coordinators' count for share groups."""
    behind_transaction: Ints | None = None
    position: Ints | None = None
    last_timestamp: Reals | None = None
    worker: NDArray[np.object_] | None = None
    generation: Ints | None = None
    stored_messages: Ints | None = None
    """None without a storage between Kafka and the consumer."""
    stored_seconds: Reals | None = None

    @property
    def lag(self) -> Ints:
        is_known = (self.lag_from != ABSENT) & (self.end != ABSENT)
        return np.where(is_known, np.maximum(self.end - self.lag_from, 0), ABSENT)

    @property
    def age_seconds(self) -> Reals:
        return np.round(self.now - self.at, 6)

    def chosen(self, names: Names, rows: Rows) -> PartitionColumns:
        """Returns columns for the partitions `names`. `rows` has each partition's row in `self`, or -1."""
        columns: Iterator[tuple[str, Any]] = ((each.name, getattr(self, each.name)) for each in fields(self)[2:])
        chosen: dict[str, Any] = {
            name: None if column is None else rearranged(column, rows, _absent(column)) for name, column in columns
        }
        return PartitionColumns(names, self.now, **chosen)

    def of_group(self, number: int) -> PartitionRows:
        return PartitionRows(self, *self.names.begins[number : number + 2])

    def lags(self) -> list[LagTotals]:
        names, lag = self.names, self.lag
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
        return totals if self.behind_transaction is None else [*map(self._with_behind, totals, pairwise(names.begins))]

    def _with_behind(self, total: LagTotals, bounds: tuple[int, int]) -> LagTotals:
        behind = self.listed("behind_transaction", ABSENT)[slice(*bounds)]
        known = [messages for messages in behind if messages != ABSENT]
        return replace(total, behind_transaction=sum(known) if known else None)

    def oldest(self) -> list[float | None]:
        """Returns the age of each group's oldest report of offsets, or None for a group without partitions."""
        bounds = np.array(self.names.begins, np.intp)
        has_any = bounds[1:] > bounds[:-1]
        ages = np.full(len(has_any), None, np.object_)
        if has_any.any():
            ages[has_any] = np.maximum.reduceat(self.age_seconds, bounds[:-1][has_any])
        return ages.tolist()

    def rows(self, part: slice = slice(None)) -> Iterator[PartitionRow]:
        return map(PartitionRow, *self._values(_FIELDS, part))

    def json_rows(self, *also: str, part: slice = slice(None)) -> list[JsonObject]:
        """Returns rows as in the JSON answer, with additional columns (`also`)."""
        names = (*_FIELDS, *also)
        rows = [dict(zip(names, values, strict=True)) for values in zip(*self._values(names, part), strict=True)]
        for row in rows:
            if row["behind_transaction"] is None:
                del row["behind_transaction"]
        return rows

    def _values(self, names: Iterable[str], part: slice) -> Iterator[Sequence[Any]]:
        keys = self.names.keys[part]
        for name in names:
            if name in ("topic", "partition"):
                yield [*map(itemgetter(name == "partition"), keys)]
            else:
                yield _listed(getattr(self, _RENAMED.get(name, name)), part, len(keys))

    def listed(self, name: str, absent: Any) -> list[Any]:
        """Returns the column `name` as a list, filled with `absent` if the column is None."""
        column: NDArray[Any] | None = getattr(self, name)
        return [absent] * len(self.names) if column is None else column.tolist()

    def to_json(self) -> JsonObject:
        return {"rows": self.json_rows()}


def lag_from(committed: Ints, start: Ints, position: Ints | None, reset: ResetPolicy) -> Ints:
    """Returns the offsets from which lag is counted: the committed offsets. Without a commit, lag counts from `start`
    (policy `earliest`) or from `position` (`latest`). With `none`, lag is unknown without a commit."""
    first = {ResetPolicy.EARLIEST: start, ResetPolicy.LATEST: position}.get(reset)
    return committed if first is None else np.where(committed == ABSENT, first, committed)


def rearranged(column: NDArray[Any], rows: Rows, fill: object) -> NDArray[Any]:
    """Returns the column's values at `rows`, in the order of `rows`. An index of -1 gives `fill`."""
    found = np.full((*column.shape[:-1], len(rows)), fill, column.dtype)
    found[..., rows >= 0] = column[..., rows[rows >= 0]]
    return found


def as_reals(offsets: Ints) -> Reals:
    """Returns offsets as floats, NaN if unknown."""
    return np.where(offsets == ABSENT, np.nan, offsets)


def _absent(column: NDArray[Any]) -> Any:
    return {"f": np.nan, "O": None}.get(column.dtype.kind, ABSENT)


def _listed(column: NDArray[Any] | None, part: slice, size: int) -> Sequence[Any]:
    if column is None:
        return [None] * size
    values: list[Any] = column[part].tolist()
    if column.dtype == np.float64:
        return [None if value != value else value for value in values]
    return [None if value == ABSENT else value for value in values]


class PartitionRows:
    __slots__ = ("_begin", "_columns", "_end")

    def __init__(self, columns: PartitionColumns, begin: int, end: int) -> None:
        self._columns, self._begin, self._end = columns, begin, end

    def __len__(self) -> int:
        return self._end - self._begin

    def to_json(self, *also: str) -> list[JsonObject]:
        return self._columns.json_rows(*also, part=slice(self._begin, self._end))

    def __iter__(self) -> Iterator[PartitionRow]:
        return self._columns.rows(slice(self._begin, self._end))

    def __getitem__(self, index: int) -> PartitionRow:
        row = range(self._begin, self._end)[index]
        return next(self._columns.rows(slice(row, row + 1)))
