"""Keeps the last day of a fleet in RAM: lag, rates, batches and memory use.

Keeps each metric's least and greatest value in each time step. Older steps are longer. If partitions need too much RAM
(see `_MOST_SERIES`), keeps only 15 minutes of their lag.
"""

import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kctl.groups.snapshot import ClusterSnapshot, GroupSnapshot
from kctl.master.snapshot import FleetSnapshot
from kctl.rows.columns import Reals, as_reals
from kctl.rows.workers import NOT_GROUP_MEMBERS


class Ring:
    def __init__(self, step_seconds: float, slots: int) -> None:
        self.step_seconds, self.slots = step_seconds, slots
        self._values = np.full((slots, 2, 0, 0), np.nan, np.float32)
        """By slot, least and most, metric, subject, so that one snapshot changes adjacent values."""
        self._last: int | None = None

    def choose(self, places: NDArray[np.intp], metrics: int) -> None:
        """Sets the subjects to keep, such as partitions. `places` has their previous indexes, -1 for a new one."""
        chosen = np.full((self.slots, 2, metrics, len(places)), np.nan, np.float32)
        [is_old] = np.nonzero(places >= 0)
        if len(is_old):
            chosen[..., is_old] = self._values[..., places[is_old]]
        self._values = chosen

    def add(self, at: float, values: Reals) -> None:
        """Adds the values at time `at`, one row for each metric. If the clock was set back, drops later steps."""
        step = int(at // self.step_seconds)
        if self._last is not None and step != self._last:
            low, high = sorted((step, self._last))
            self._values[np.arange(low + 1, min(high, low + self.slots) + 1) % self.slots] = np.nan
        self._last = step
        least, most = self._values[step % self.slots]
        np.fmin(least, values, out=least)
        np.fmax(most, values, out=most)

    def reaches(self, since: float) -> bool:
        return self._last is None or since // self.step_seconds > self._last - self.slots

    def window(self, place: int, since: float, until: float) -> tuple[int, Reals, Reals]:
        """Returns the number of the first step, then each metric's least and greatest values by step."""
        last = self._last or 0
        first = max(int(since // self.step_seconds), last - self.slots + 1)
        steps = np.arange(first, max(min(int(until // self.step_seconds), last), first - 1) + 1)
        values = self._values[steps % self.slots, :, :, place].astype(np.float64)
        return first, values[:, 0].T, values[:, 1].T

    def last_most(self, places: NDArray[np.intp], ratio: int, count: int) -> Reals:
        """Divides the last steps into `count` periods of `ratio` steps. Returns the greatest values of the
        first metric: a row for each period, oldest first, and a column for each subject in `places`."""
        last = self._last or 0
        steps = np.arange((last // ratio - count + 1) * ratio, (last // ratio + 1) * ratio)
        most = self._values[(steps % self.slots)[:, None], 1, 0, places].astype(np.float64)
        most[(steps > last) | (steps <= last - self.slots)] = np.nan
        grouped: Reals = np.fmax.reduce(most.reshape(count, ratio, len(places)), axis=1)
        return grouped


class StepRates:
    """Computes the rates of counters once per time step. Rates per snapshot would jump whenever a batch ends."""

    def __init__(self, step_seconds: float) -> None:
        self._step_seconds = step_seconds
        self._step: int | None = None
        self._places: dict[Hashable, int] = {}
        self._counters: Reals = np.zeros((0, 0))
        self._at = 0.0

    def add(self, keys: Sequence[Hashable], counters: Reals, now: float, now_unix: float) -> Reals:
        """Only the first call in each time step returns rates, per second since the previous step. Other calls return
        NaN. If a counter is new or has fallen, as after a restart, its rate is NaN. `now` is monotonic."""
        step = int(now_unix // self._step_seconds)
        rates = np.full(counters.shape, np.nan)
        if step == self._step:
            return rates
        if len(self._counters) and len(keys):
            places = np.array([self._places.get(key, -1) for key in keys], np.intp)
            [is_old] = np.nonzero(places >= 0)
            grown = counters[:, is_old] - self._counters[:, places[is_old]]
            rates[:, is_old] = np.where(grown >= 0, grown, np.nan) / max(now - self._at, 1e-3)
        self._step, self._at, self._counters = step, now, counters
        self._places = {key: place for place, key in enumerate(keys)}
        return rates


KEPT_SECONDS = 86_400
_STEP_SECONDS = 5.0
_SLOW_SECONDS = 2.5
"""If snapshots are rarer, the finest step is that of the sparkline, because a step without a snapshot is a gap."""
_SPARK_SECONDS, _SPARKS = 15.0, 60
_MOST_GROUPS = 20
"""kctl keeps the groups with the most lag; a known group stays until twice as many have more."""
_MOST_SERIES = 5000
"""The most series with 711 steps of two float32: 28 MB. Above that, a kind of subject has its first metric only."""

_SPARE_SERIES = 500
"""Extra room for known series, so that a process that comes and goes does not reset others."""

_OF_PARTITION = ("lag", "lag_seconds", "produced_per_second", "stored_per_second")
_OF_FLEET = (*_OF_PARTITION, "handled_per_second", "batch_seconds", "memory_bytes")

Subject: TypeAlias = tuple[str, Hashable]
"""`fleet` and None, `topic` and name, `partition` and (topic, number), `worker` and name, `group` and (cluster,
name)."""
FLEET: Subject = "fleet", None
Columns: TypeAlias = Mapping[str, Reals]


@dataclass(frozen=True, slots=True)
class Window:
    """Part of one subject's history. Step N begins at `first_at + N * step_seconds`. All times are Unix seconds."""

    began_at: float  # nothing is known before it
    first_at: float
    step_seconds: float
    least: Mapping[str, Reals]
    most: Mapping[str, Reals]


@dataclass(slots=True)
class _Table:
    metrics: tuple[str, ...]
    places: dict[Hashable, int] = field(default_factory=dict)
    rings: list[Ring] = field(default_factory=list)
    began_at: float = 0.0

    def choose(self, keys: Sequence[Hashable], steps: Sequence[tuple[float, int]], now: float) -> None:
        is_new = [(ring.step_seconds, ring.slots) for ring in self.rings] != list(steps)
        if is_new:
            self.rings, self.places, self.began_at = [Ring(*step) for step in steps], {}, now
        elif [*self.places] == list(keys):
            return
        before = np.array([self.places.get(key, -1) for key in keys], np.intp)
        for ring in self.rings:
            ring.choose(before, len(self.kept))
        self.places = {key: place for place, key in enumerate(keys)}

    @property
    def kept(self) -> tuple[str, ...]:
        return self.metrics if len(self.rings) > 1 else self.metrics[:1]

    def add(self, values: Columns, now: float) -> None:
        rows = np.stack([values[name] for name in self.kept])
        for ring in self.rings:
            ring.add(now, rows)


class FleetHistory:
    """The last day of a fleet. One thread adds snapshots, and any thread may read."""

    def __init__(self, interval_seconds: float = 1.0) -> None:
        step = _STEP_SECONDS if interval_seconds <= _SLOW_SECONDS else _SPARK_SECONDS
        # The coarser rings reach back two hours and a day. Each ring has a step in progress.
        self._steps = ((step, 181), (30.0, 241), (300.0, 289))
        self._lock = threading.Lock()
        self._tables = {
            "fleet": _Table(_OF_FLEET),
            "group": _Table(_OF_PARTITION[:2]),
            "worker": _Table((*_OF_FLEET[:2], *_OF_FLEET[3:], "partitions")),
            "topic": _Table(_OF_PARTITION),
            "partition": _Table(_OF_PARTITION),
        }
        self._offsets, self._counts = StepRates(step), StepRates(step)
        self._batches: dict[str, int | None] = {}
        self._clusters: Sequence[ClusterSnapshot] | None = None
        self._groups: list[GroupSnapshot] = []

    def add(self, snapshot: FleetSnapshot) -> None:
        values = self._values(snapshot)
        left = _MOST_SERIES
        with self._lock:
            for kind, table in self._tables.items():
                keys, columns = values[kind]
                series = len(keys) * len(table.metrics)
                fits = series <= left + (_SPARE_SERIES if len(table.rings) > 1 else 0)
                steps = self._steps if fits else ((_SPARK_SECONDS, _SPARKS),)
                left = max(left - series, 0) if fits else left
                table.choose(keys, steps, snapshot.taken_at_unix)
                table.add(columns, snapshot.taken_at_unix)

    def read(self, subject: Subject, since: float, until: float) -> Window | None:
        """Returns values in the shortest steps that reach back to `since`, or None for an unknown subject."""
        kind, key = subject
        with self._lock:
            table = self._tables[kind]
            if key not in table.places:
                return None
            known_since = max(since, table.began_at)
            ring = next((each for each in table.rings if each.reaches(known_since)), table.rings[-1])
            first, least, most = ring.window(table.places[key], since, until)
        names = table.kept
        columns = dict(zip(names, least, strict=True)), dict(zip(names, most, strict=True))
        return Window(table.began_at, first * ring.step_seconds, ring.step_seconds, *columns)

    def sparklines(self, partitions: Sequence[Hashable]) -> list[list[int | None]]:
        """Returns the greatest lag of each partition in each 15 s of the last 15 minutes, oldest first. Each list
        begins at the partition's first known lag."""
        with self._lock:
            table = self._tables["partition"]
            if not table.places:
                return [[] for _ in partitions]
            places = [table.places.get(each, -1) for each in partitions]
            ring = table.rings[0]
            most = ring.last_most(np.array(places, np.intp), round(_SPARK_SECONDS / ring.step_seconds), _SPARKS)
        return [_from_first(lags) if place >= 0 else [] for place, lags in zip(places, most.T.tolist(), strict=True)]

    def _values(self, snapshot: FleetSnapshot) -> Mapping[str, tuple[Sequence[Hashable], Columns]]:
        now, now_unix = snapshot.taken_at, snapshot.taken_at_unix
        rows, size = snapshot.offset_checker.result, len(snapshot.partitions)
        keys, offsets = rows.names.keys[:size], [as_reals(each[:size]) for each in (rows.end, rows.committed)]
        produced, stored = self._offsets.add(keys, np.stack(offsets), now, now_unix)
        of_partitions = {
            "lag": as_reals(rows.lag[:size]),
            "lag_seconds": snapshot.own_assessments.column("lag_seconds"),
            "produced_per_second": produced,
            "stored_per_second": stored,
        }
        begins = [place for place, key in enumerate(keys) if place == 0 or keys[place - 1][0] != key[0]]
        workers, of_workers = self._of_workers(snapshot, of_partitions)
        return {
            "fleet": ([None], {**_of_fleet(of_partitions), **_of_processes(snapshot, of_workers)}),
            "group": self._of_groups(snapshot),
            "worker": (workers, of_workers),
            "topic": ([keys[place][0] for place in begins], _summed(of_partitions, begins)),
            "partition": (keys, of_partitions),
        }

    def _of_groups(self, snapshot: FleetSnapshot) -> tuple[Sequence[Hashable], Columns]:
        if snapshot.clusters is not self._clusters:
            self._clusters = snapshot.clusters
            all_groups = (group for cluster in snapshot.clusters for group in cluster.groups)
            largest = nlargest(2 * _MOST_GROUPS, all_groups, key=lambda group: group.lag.total or 0)
            kept = self._tables["group"].places
            largest.sort(key=lambda group: (group.cluster, group.group) not in kept)
            self._groups = largest[:_MOST_GROUPS]
        lags = [group.lag.total for group in self._groups]
        seconds = [group.assessment.lag_seconds for group in self._groups]
        keys = [(group.cluster, group.group) for group in self._groups]
        return keys, {"lag": _reals(lags), "lag_seconds": _reals(seconds)}

    def _of_workers(self, snapshot: FleetSnapshot, of_partitions: Columns) -> tuple[list[str], dict[str, Reals]]:
        rows = snapshot.workers.result.rows
        names, handled_counts = [row.name for row in rows], [row.sinker.handled if row.sinker else None for row in rows]
        counts = _reals([row.rows_total for row in rows]), _reals(handled_counts)
        stored, handled = self._counts.add(names, np.stack(counts), snapshot.taken_at, snapshot.taken_at_unix)
        has_ended = [self._batches.get(row.name, row.batches_total) != row.batches_total for row in rows]
        self._batches = {row.name: row.batches_total for row in rows}
        is_member = np.array([row.kind not in NOT_GROUP_MEMBERS for row in rows], np.bool_)
        places = {name: place for place, name in enumerate(names)}
        workers = snapshot.offset_checker.result.listed("worker", None)[: len(snapshot.partitions)]
        owner = np.array([places.get(worker or "", len(names)) for worker in workers], np.intp)
        held = np.bincount(owner, minlength=len(names) + 1)[: len(names)].astype(np.float64)
        lag, lag_seconds = (_per_owner(of_partitions[name], owner, len(names)) for name in ("lag", "lag_seconds"))
        return names, {
            "lag": lag[0],
            "lag_seconds": lag_seconds[1],
            "stored_per_second": np.where(is_member, stored, np.nan),
            "handled_per_second": handled,
            "batch_seconds": np.where(has_ended, _reals([row.last_batch_seconds for row in rows]), np.nan),
            "memory_bytes": _reals([snapshot.resident_bytes.get(row.name, row.rss_bytes) for row in rows]),
            "partitions": np.where(is_member, held, np.nan),
        }


def _of_fleet(of_partitions: Columns) -> dict[str, Reals]:
    if not len(of_partitions["lag"]):
        return dict.fromkeys(of_partitions, np.full(1, np.nan))
    return _summed(of_partitions, [0])


def _of_processes(snapshot: FleetSnapshot, of_workers: Columns) -> dict[str, Reals]:
    is_member = np.array([row.kind not in NOT_GROUP_MEMBERS for row in snapshot.workers.result.rows], np.bool_)
    memory = _reals([*snapshot.resident_bytes.values()])
    return {
        "handled_per_second": np.array([_sum(of_workers["handled_per_second"])]),
        "batch_seconds": np.array([np.fmax.reduce(of_workers["batch_seconds"][is_member], initial=np.nan)]),
        "memory_bytes": np.array([_sum(memory)]),
    }


def _summed(values: Columns, begins: Sequence[int]) -> dict[str, Reals]:
    # Known values of consecutive partitions are summed; of the time lags, the greatest counts.
    found, starts = {}, np.array(begins, np.intp)
    for name, column in values.items():
        if name == "lag_seconds":
            found[name] = np.fmax.reduceat(column, starts)
        else:
            is_known = np.logical_or.reduceat(~np.isnan(column), starts)
            found[name] = np.where(is_known, np.add.reduceat(np.nan_to_num(column), starts), np.nan)
    return found


def _from_first(lags: list[float]) -> list[int | None]:
    known = [None if lag != lag else int(lag) for lag in lags]
    return known[next((place for place, lag in enumerate(known) if lag is not None), len(known)) :]


def _per_owner(column: Reals, owner: NDArray[np.intp], count: int) -> tuple[Reals, Reals]:
    is_known = ~np.isnan(column)
    sums = np.bincount(owner[is_known], column[is_known], count + 1)[:count]
    has_any = np.bincount(owner[is_known], minlength=count + 1)[:count] > 0
    most = np.full(count + 1, np.nan)
    np.fmax.at(most, owner, column)
    return np.where(has_any, sums, np.nan), most[:count]


def _sum(values: Reals) -> float:
    is_known = ~np.isnan(values)
    return float(values[is_known].sum()) if is_known.any() else np.nan


def _reals(values: Sequence[float | None]) -> Reals:
    return np.array(values, np.float64)
