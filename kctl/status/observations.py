"""Observed offsets of many partitions over time, in columns. Pure.

Most partitions keep only a few rows, active ones up to 64: so there are tables of several widths, and each partition is
in the narrowest that fits. As objects, the observations of a hundred thousand partitions would be millions, which the
garbage collector would scan again and again.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kctl.rows.columns import Bools, Ints, Reals, Rows

Offsets = NDArray[np.signedinteger[Any]]
"""Offsets, in 32 bits as long as all fit: they take most of the memory."""

_Kinds: TypeAlias = tuple[type[np.uint32], type[np.signedinteger[Any]], type[np.signedinteger[Any]]]
_MOST_MILLISECONDS = int(np.iinfo(np.uint32).max)
_BEFORE_MILLISECONDS = 86_400_000
"""How far a time may be before the first observation."""

_WIDTHS = (4, 8, 16, 32, 65)
_WIDTHS_OF_TIERS = np.array(_WIDTHS)
_SHORT = int(np.iinfo(np.int32).max)
_KEPT = 64
_THINNED = 48
"""Number of an active partition's rows at which they are thinned, and how many remain."""
_DETAIL = 6.0
"""The approximate distance of observations, as part of their age."""
_NEVER = np.inf
_LARGE_BYTES = 1 << 20
_FEW = 8
"""Lines of a table up to which each is searched separately."""


class ObservationTable(NamedTuple):
    """Rows of some partitions, one column each, oldest first; undefined after the last. Or one row of each.

    Row after row in memory: most partitions are read and written in the same row, and unused rows take no memory.
    """

    at: NDArray[Any]
    """Milliseconds of `Observations.time_of`; or seconds."""
    committed: Offsets
    end: Offsets

    @classmethod
    def empty(cls, size: int, width: int, kinds: _Kinds) -> ObservationTable:
        return cls(*(_zeros((width, size), kind) for kind in kinds))

    def taken(self, slots: Rows, height: int | None = None) -> ObservationTable:
        """Returns the first rows of some partitions; None: all."""
        return ObservationTable._make(column[:height].take(slots, axis=1) for column in self)

    def put(self, slots: Rows, lines: ObservationTable) -> None:
        for column, new in zip(self, lines, strict=True):
            column[: len(new), slots] = new

    def kept(self, is_kept: Bools) -> ObservationTable:
        """Returns the table without the dropped rows; later ones move up."""
        table = ObservationTable._make(np.zeros_like(column) for column in self)
        _, lines = np.nonzero(is_kept)
        places = (np.cumsum(is_kept, axis=0) - 1)[is_kept]
        for column, old in zip(table, self, strict=True):
            column[places, lines] = old[is_kept]
        return table


class _Tier:
    """A table of one width, and its free lines."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.kinds: _Kinds = (np.uint32, np.int32, np.int32)
        self.table = ObservationTable.empty(0, width, self.kinds)
        self.free = np.empty(0, np.intp)

    def allot(self, count: int) -> Rows:
        if len(self.free) < count:
            size = self.table.at.shape[1]
            more = max(count - len(self.free), size // 4)
            added = ObservationTable.empty(more, self.width, self.kinds)
            joined = (np.concatenate(each, axis=1) for each in zip(self.table, added, strict=True))
            self.table = ObservationTable._make(joined) if size else added
            self.free = np.concatenate((self.free, np.arange(size, size + more)))
        slots, self.free = self.free[:count], self.free[count:]
        return slots

    def release(self, slots: Rows) -> None:
        self.free = np.concatenate((self.free, slots))
        if len(self.free) == self.table.at.shape[1]:
            self.table, self.free = ObservationTable.empty(0, self.width, self.kinds), self.free[:0]

    def widen_offsets(self) -> None:
        """Makes room for any offset from now on."""
        self.kinds = (np.uint32, np.int64, np.int64)
        short = self.table
        self.table = ObservationTable(short.at, *(_zeros(column.shape, np.int64) for column in short[1:]))
        for column, old in zip(self.table[1:], short[1:], strict=True):
            np.copyto(column, old, where=old != 0)  # what no partition has reached yet goes on to take no memory


class Observations:
    """The observations of `size` partitions. Times (kept in milliseconds) and ends of a partition never fall.

    `count`, `first_at`, `first_end` and `end_since` (the time of the first row with the newest end) are read-only
    columns.
    """

    def __init__(self, size: int) -> None:
        self._began: int | None = None
        """The milliseconds at which times are counted from."""
        self._tiers = [_Tier(width) for width in _WIDTHS]
        self._tier = np.zeros(size, np.int8)
        self._slot = self._tiers[0].allot(size)
        self.count = np.zeros(size, np.intp)
        self.first_at = np.full(size, _NEVER)
        self.first_end = np.zeros(size, np.int64)
        self.end_since = np.full(size, _NEVER)
        self._second_at = np.full(size, _NEVER)
        self._longest = 0
        """The highest offset until one was too long for 32 bits."""
        self._is_run = np.zeros(size, np.bool_)
        """Whether the last two rows have the same offsets."""

    def choose(self, rows: Rows) -> None:
        """Reorders partitions: they become `rows` of the current ones; -1 is a new one."""
        is_old = rows >= 0
        is_left = np.ones(len(self.count), np.bool_)
        is_left[rows[is_old]] = False
        for number, tier in enumerate(self._tiers):
            tier.release(self._slot[is_left & (self._tier == number)])
        for name, fill in _COLUMNS.items():
            column = getattr(self, name)
            chosen = np.full(len(rows), fill, column.dtype)
            chosen[is_old] = column[rows[is_old]]
            setattr(self, name, chosen)
        self._slot[~is_old] = self._tiers[0].allot(int(np.count_nonzero(~is_old)))

    def forget(self, rows: Rows) -> None:
        self._store(
            rows, ObservationTable.empty(len(rows), _WIDTHS[0], self._tiers[0].kinds), np.zeros(len(rows), np.intp)
        )

    def cut_off(self, rows: Rows, end: Ints) -> None:
        """Lowers ends above `end` to it."""
        for table, slots, part in self.tables(rows):
            lines = table.taken(slots)
            table.end[:, slots] = np.minimum(lines.end, end[part])
            self._note(rows[part], table.taken(slots))

    def add(self, rows: Rows, new: ObservationTable, is_same: Bools, is_end_same: Bools) -> None:
        """Adds a row of each, which may have the offsets, or only the end, of its newest. Within a run of equal offsets
        no row is kept."""
        if self._longest <= _SHORT and len(rows):
            self._longest = int(max(self._longest, new.committed.max(), new.end.max()))
            if self._longest > _SHORT:
                for tier in self._tiers:
                    tier.widen_offsets()
        self._begin(new.at)
        stored = new._replace(at=self._milliseconds(new.at))
        every = whole(rows, len(self.count))
        count = self.count[every]
        is_first, is_run = count == 0, is_same & self._is_run[every]
        place = np.where(is_run, count - 1, count)
        self._make_room(rows, place, every)
        tiers = self._tier[every]
        for number, size in enumerate(np.bincount(tiers, minlength=len(self._tiers)).tolist()):
            if size:
                part = np.flatnonzero(tiers == number) if size < len(rows) else slice(None)
                where = place[part], self._slot[every][part]
                for column, values in zip(self._tiers[number].table, stored, strict=True):
                    column[where] = values[part]
        self.count[every] = place + 1
        self._is_run[every] = is_same & ~is_first
        is_second = place == 1
        if is_first.any():
            self.first_at[rows[is_first]], self.first_end[rows[is_first]] = new.at[is_first], new.end[is_first]
        self._second_at[rows[is_second]] = new.at[is_second]
        self.end_since[every] = np.where(is_end_same, self.end_since[every], new.at)

    def time_of(self, milliseconds: NDArray[Any]) -> Reals:
        """Returns times in seconds."""
        return (milliseconds.astype(np.int64) + (self._began or 0)) / 1000

    def _milliseconds(self, at: Reals) -> NDArray[np.uint32]:
        """Returns the last milliseconds not after these times; 0 if unknown."""
        found = np.floor(np.nan_to_num(at, nan=-np.inf) * 1000 + 1e-3) - (self._began or 0)
        milliseconds: NDArray[np.uint32] = np.clip(found, 0, _MOST_MILLISECONDS).astype(np.uint32)
        return milliseconds

    def _begin(self, at: Reals) -> None:
        """Counts from a time that leaves room for these: from a later one after seven weeks."""
        if not len(at):
            return
        latest = int(at.max() * 1000)
        if self._began is None:
            self._began = int(at.min() * 1000) - _BEFORE_MILLISECONDS
        if latest - self._began > _MOST_MILLISECONDS:
            later = latest - _MOST_MILLISECONDS // 2 - self._began
            self._began += later
            for tier in self._tiers:
                for row in filter(np.any, tier.table.at):
                    row[:] = np.maximum(row, later) - later

    def forget_before(self, rows: Rows, since: Reals) -> None:
        """Forgets older rows except the newest of them, which held then."""
        is_passed = (self.count[rows] > 2) & (self._second_at[rows] <= since)
        rows, since = rows[is_passed], since[is_passed]
        for table, slots, part in self.tables(rows):
            lines, passed = table.taken(slots), self._held_in(table, slots, rows[part], since[part])
            numbers = np.arange(len(lines.at))[:, None]
            is_kept = (numbers >= passed) & (numbers < self.count[rows[part]])
            self._store(rows[part], lines.kept(is_kept), np.count_nonzero(is_kept, axis=0))

    def thin(self, rows: Rows) -> None:
        """Thins rows if there are too many, older ones more; so an hour fits beside the last seconds."""
        rows = rows[self.count[rows] > _KEPT]
        if not len(rows):
            return
        lines = self._tiers[-1].table.taken(self._slot[rows])
        count, share = self.count[rows], 1 / _DETAIL
        while True:
            [many] = np.nonzero(count > _THINNED)
            if not len(many):
                break
            some = lines.taken(many)
            is_kept = _worth_keeping(self.time_of(some.at), some.committed, count[many], share)
            lines.put(many, some.kept(is_kept))
            count[many] = np.count_nonzero(is_kept, axis=0)
            share *= 2
        self._store(rows, lines, count)

    def held(self, rows: Rows, since: Reals) -> Rows:
        """Returns the row that held at `since`, before the newest; or the first."""
        numbers = np.zeros(len(rows), np.intp)
        for table, slots, part in self.tables(rows):
            numbers[part] = self._held_in(table, slots, rows[part], since[part])
        return numbers

    def of(self, rows: Rows, numbers: Rows) -> tuple[Reals, Ints, Ints]:
        """Returns time, committed and end of each of `rows` in its row of that number."""
        values = ObservationTable(np.empty(len(rows)), np.empty(len(rows), np.int64), np.empty(len(rows), np.int64))
        for table, slots, part in self.tables(rows):
            where = numbers[part], slots
            values.at[part] = self.time_of(table.at[where])
            values.committed[part], values.end[part] = table.committed[where], table.end[where]
        return values

    def _held_in(self, table: ObservationTable, slots: Rows, rows: Rows, since: Reals) -> Rows:
        held = bisected(table.at, slots, self.count[rows] - 1, self._milliseconds(since))
        return np.maximum(held - 1, 0)

    def tables(self, rows: Rows) -> Iterator[tuple[ObservationTable, Rows, Rows]]:
        """Yields the tables of `rows`: their lines in it, and which of `rows` they are."""
        tiers = self._tier[rows]
        for number, tier in enumerate(self._tiers):
            part = np.flatnonzero(tiers == number)
            if len(part):
                yield tier.table, self._slot[rows[part]], part

    def _make_room(self, rows: Rows, place: Rows, every: Rows | slice) -> None:
        """Moves partitions without such a row to a wider table."""
        is_full = place >= _WIDTHS_OF_TIERS[self._tier[every]]
        if is_full.any():
            full = rows[is_full]
            tiers = self._tier[full]
            for number in range(len(self._tiers) - 1):
                moving = full[tiers == number]
                if len(moving):
                    self._move(moving, number + 1)

    def _move(self, rows: Rows, number: int) -> None:
        old, new = self._tiers[int(self._tier[rows[0]])], self._tiers[number]
        slots = new.allot(len(rows))
        for column, narrower in zip(new.table, old.table, strict=True):  # one at a time: together they take much memory
            column[: old.width, slots] = narrower.take(self._slot[rows], axis=1)
        old.release(self._slot[rows])
        self._tier[rows], self._slot[rows] = number, slots

    def _store(self, rows: Rows, lines: ObservationTable, count: NDArray[np.intp]) -> None:
        """Replaces the lines of partitions; those that need less room move to a narrower table."""
        tier = np.searchsorted(_WIDTHS, count).astype(np.int8)
        for number, new in enumerate(self._tiers):
            part = np.flatnonzero(tier == number)
            if not len(part):
                continue
            there = rows[part]
            for old_number, old in enumerate(self._tiers):
                moving = there[self._tier[there] == old_number] if old_number != number else there[:0]
                if len(moving):
                    old.release(self._slot[moving])
                    self._tier[moving], self._slot[moving] = number, new.allot(len(moving))
            some = lines.taken(part)
            new.table.put(self._slot[there], ObservationTable._make(each[: new.width] for each in some))
        self.count[rows] = count
        self._note(rows, lines)

    def _note(self, rows: Rows, lines: ObservationTable) -> None:
        """Records what is kept of the lines in columns."""
        count, number = self.count[rows], np.arange(len(rows))
        last, before = np.maximum(count - 1, 0), np.maximum(count - 2, 0)
        time = self.time_of
        self.first_at[rows], self.first_end[rows] = np.where(count > 0, time(lines.at[0]), _NEVER), lines.end[0]
        self._second_at[rows] = np.where(count > 1, time(lines.at[1]), _NEVER)
        end = lines.end[last, number]
        self._is_run[rows] = (
            (count > 1)
            & (lines.end[before, number] == end)
            & (lines.committed[before, number] == lines.committed[last, number])
        )
        end_since = time(lines.at[np.argmax(lines.end == end, axis=0), number])
        self.end_since[rows] = np.where(count > 0, end_since, _NEVER)


_COLUMNS: dict[str, Any] = {
    "_tier": 0,
    "_slot": 0,
    "count": 0,
    "first_at": _NEVER,
    "first_end": 0,
    "end_since": _NEVER,
    "_second_at": _NEVER,
    "_is_run": False,
}


def _zeros(shape: tuple[int, ...], kind: type) -> NDArray[Any]:
    """Returns zeros; large arrays come straight from the system, so untouched memory is free and unused memory is
    returned.

    malloc keeps large blocks once some have come and gone, and writes zeros into them.
    """
    size = np.dtype(kind).itemsize * shape[0] * shape[1]
    if size < _LARGE_BYTES:
        return np.zeros(shape, kind)
    return np.frombuffer(mmap(-1, size), kind).reshape(shape)


def whole(rows: Rows, size: int) -> Rows | slice:
    """Returns all rows as a slice, which copies nothing."""
    return slice(None) if len(rows) == size else rows


def bisected(column: NDArray[Any], slots: Rows, ends: Rows, values: NDArray[Any]) -> Rows:
    """Returns how many of the first `ends` of each line are not above its value, like bisect_right."""
    if len(slots) * _FEW > column.shape[1]:
        return _counted(column, slots, ends, values)
    low, high = np.zeros(len(slots), np.intp), ends.copy()
    for _ in range(int(ends.max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        is_lower = (column[middle, slots] <= values) & (low < high)
        low = np.where(is_lower, middle + 1, low)
        high = np.where(is_lower, high, middle)
    return np.minimum(low, high)


def _counted(column: NDArray[Any], slots: Rows, ends: Rows, values: NDArray[Any]) -> Rows:
    """Counts like `bisected`, row after row: faster for many lines than searching each."""
    end, value = np.zeros(column.shape[1], np.int8), np.zeros(column.shape[1], values.dtype)
    end[slots], value[slots] = ends, values
    counts = np.zeros(column.shape[1], np.int8)
    for number in range(int(ends.max(initial=0))):
        counts += (column[number] <= value) & (end > number)
    return counts[slots].astype(np.intp)


def _worth_keeping(at: Reals, committed: Offsets, count: NDArray[np.intp], share: float) -> Bools:
    """Returns rows without which a gap would exceed that share of their age; and those that show what a commit left
    over, if there are others of the same commit."""
    newest = at[count - 1, np.arange(len(count))]
    is_kept = np.zeros(at.shape, np.bool_)
    is_kept[0] = True
    kept_at, kept_committed = at[0].copy(), committed[0].copy()
    for row in range(1, len(at) - 1):
        is_commit = (kept_committed != committed[row]) & (committed[row] == committed[row + 1])
        is_wide = at[row + 1] - kept_at > share * (newest - at[row])
        is_inner = row < count - 1
        is_kept[row] = is_inner & (is_commit | is_wide)
        np.copyto(kept_at, at[row], where=is_kept[row])
        np.copyto(kept_committed, committed[row], where=is_kept[row])
    is_kept[count - 1, np.arange(len(count))] = True
    return is_kept
