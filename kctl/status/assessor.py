"""Keeps observations of partitions. Judges all partitions at each collection of offsets. Pure: no clock or I/O."""

from collections.abc import Callable

import numpy as np

from kctl.rows.columns import ABSENT, Ints, Names, PartitionColumns, Reals, Rows
from kctl.status.assessments import AssessmentColumns, Assessments
from kctl.status.history import History, SeenOffsets, Uncommitted
from kctl.status.judgements import Hysteresis
from kctl.status.owners import Owners
from kctl.status.rules import StatusRules, cycle_seconds, growth_per_second, is_blind, judge, kept_seconds, span_seconds
from kctl.status.words import NUMBERS, Status


class Processed:
    """The timestamp of each partition's last stored record. Workers report it with their position. The timestamp is
    dropped if the committed offset rises above this position, or falls below the offset committed at that time."""

    def __init__(self, size: int) -> None:
        self.timestamp: Reals = np.broadcast_to(np.float64(np.nan), size)
        """Kafka's timestamps in Unix seconds; NaN if unknown. Columns take no memory before the first report, which
        groups of other clients never get."""
        self._committed: Ints = np.broadcast_to(np.int64(0), size)
        self._position = self._committed

    def choose(self, rows: Rows) -> None:
        """Replaces the partitions. `rows` has each partition's old index, or -1 for a new partition."""
        is_old = rows >= 0
        for name, fill in vars(Processed(len(rows))).items():
            column = getattr(self, name)
            chosen = fill.copy() if column.flags.writeable else fill
            if column.flags.writeable:
                chosen[is_old] = column[rows[is_old]]
            setattr(self, name, chosen)

    def add(self, timestamp: Reals, position: Ints, committed: Ints) -> None:
        """Adds the workers' reports. A partition without a report keeps its timestamp while the timestamp is valid."""
        is_reported = ~np.isnan(timestamp) & (position != ABSENT)
        at_most = np.where(committed == ABSENT, position, np.minimum(committed, position))
        is_agreed = (committed != ABSENT) & (self._committed <= committed) & (committed <= self._position)
        self.timestamp = np.where(is_reported, timestamp, np.where(is_agreed, self.timestamp, np.nan))
        self._committed = np.where(is_reported, at_most, self._committed)
        self._position = np.where(is_reported, position, self._position)


def lag_seconds(lag: Ints, timestamp: Reals, caught_up_at: Reals, now: float, now_unix: float) -> Reals:
    """Returns the time lag of each partition: 0 without pending messages, NaN if unknown.

    The time lag is the smaller of the last stored record's age and the time since the partition last caught up.
    """
    # If a message arrives after an hour of silence, the last record alone would give an hour. If kctl starts while
    # messages are pending, the time of catching up is not known.
    of_record = np.where(timestamp <= now_unix, now_unix - timestamp, np.nan)
    bound = np.fmin(now - caught_up_at, of_record)
    return np.where(lag == 0, 0.0, np.where(lag == ABSENT, np.nan, bound))


class Assessor:
    """Judges the partitions of groups. Not thread-safe. Forgets partitions that `assess` no longer gets."""

    def __init__(self, rules: StatusRules, allowed_lag_of: Callable[[str], int] = lambda _: 0) -> None:
        """`allowed_lag_of` takes a group's name and returns the lag that is not reported as a problem."""
        self._rules, self._allowed_lag_of = rules, allowed_lag_of
        self._names = Names({})
        self._allowed_lag: Ints = np.empty(0, np.int64)
        self._history = History(0)
        self._hysteresis = Hysteresis(0)
        self._processed = Processed(0)

    def adopt(self, rules: StatusRules, allowed_lag_of: Callable[[str], int]) -> None:
        """Replaces the rules and allowed lags. Forgets the observations of groups for which either changed."""
        self._allowed_lag_of = allowed_lag_of
        if rules != self._rules:
            self._rules, self._names = rules, Names({})
            self._choose(np.empty(0, np.intp))
            return
        old, self._allowed_lag = self._allowed_lag, self._allowed(self._names)
        self._choose(np.where(old == self._allowed_lag, np.arange(len(old)), -1))

    def assess(self, partitions: PartitionColumns, owners: Owners, now_unix: float) -> Assessments:
        """Records the offsets of all partitions, and judges each. `now_unix` is `partitions.now` in Unix seconds."""
        names, now = partitions.names, partitions.now
        if names != self._names:
            self._choose(names.moved_from(self._names))
            self._allowed_lag = self._allowed(names)
        self._names = names
        seen, rules, lag, allowed_lag = self._history, self._rules, partitions.lag, self._allowed_lag
        self._see(partitions, owners)
        judged = judge(seen, owners, rules, allowed_lag, now, partitions.stored_messages)
        held = self._hysteresis.settle(judged.status, now, rules.hold_seconds, is_blind(seen, owners, rules, now))
        cycle = cycle_seconds(seen, owners)
        growth = _rounded(growth_per_second(seen, span_seconds(cycle, rules)))
        growth[(lag == ABSENT) | (judged.status == NUMBERS[Status.UNKNOWN])] = np.nan
        lag = np.where((lag != ABSENT) & (lag <= allowed_lag), 0, lag)
        waited = lag_seconds(lag, self._processed.timestamp, seen.caught_up_at(), now, now_unix)
        waited[judged.status == NUMBERS[Status.ELSEWHERE]] = np.nan  # its worker knows the last record's timestamp
        waited = _rounded(waited)
        oldest = _oldest(waited, partitions.stored_messages, partitions.stored_seconds)
        columns = waited, growth, _catchup(lag, growth), oldest, cycle
        return Assessments(AssessmentColumns(self._hysteresis.status, held, judged, owners, *columns))

    def _allowed(self, names: Names) -> Ints:
        return names.spread(np.array([self._allowed_lag_of(name) for name in names.groups], np.int64))

    def _choose(self, rows: Rows) -> None:
        for each in (self._history, self._hysteresis, self._processed):
            each.choose(rows)

    def _see(self, reported: PartitionColumns, owners: Owners) -> None:
        seen = self._history
        if reported.last_timestamp is not None and reported.position is not None:
            self._processed.add(reported.last_timestamp, reported.position, reported.committed)
        self._begin_anew(reported)
        first = np.where(reported.lag_from == ABSENT, reported.committed, reported.lag_from)
        read = np.where(seen.is_lag_known, first, reported.start)
        is_known = (read != ABSENT) & (reported.end != ABSENT)
        offsets = SeenOffsets(reported.at, read, reported.end, reported.start)
        seen.add(offsets, is_known, kept_seconds(cycle_seconds(seen, owners)), self._allowed_lag)
        seen.excuse(owners.is_in("paused") | owners.is_in("throttled") | owners.is_in("elsewhere"))

    def _begin_anew(self, reported: PartitionColumns) -> None:
        # If lag is now counted from another offset, earlier lags cannot be compared with it.
        seen = self._history
        has_commit, had_commit = reported.committed != ABSENT, seen.uncommitted == Uncommitted.COMMITTED
        is_lag_known, is_seen = reported.lag_from != ABSENT, ~np.isnan(seen.newest.at)
        first = np.flatnonzero(has_commit & ~had_commit)
        if len(first):
            at = np.where(is_seen, reported.at, np.nan)[first]
            seen.begin(first, np.full(len(first), Uncommitted.COMMITTED, np.int8), np.ones(len(first), np.bool_), at)
        lost = np.flatnonzero(~has_commit & (had_commit | (seen.is_lag_known != is_lag_known)))
        if len(lost):
            is_gone = (seen.uncommitted == Uncommitted.GONE) | (had_commit & is_seen)
            kinds = np.where(is_gone[lost], Uncommitted.GONE, Uncommitted.NEVER).astype(np.int8)
            seen.begin(lost, kinds, is_lag_known[lost], np.full(len(lost), np.nan))


def _oldest(lag_seconds: Reals, stored: Ints | None, stored_seconds: Reals | None) -> Reals:
    if stored is None or stored_seconds is None:
        return lag_seconds
    in_storage = np.where(stored == 0, 0.0, np.where(stored == ABSENT, np.nan, stored_seconds))
    return np.maximum(lag_seconds, _rounded(in_storage))  # NaN if either is unknown


def _rounded(values: Reals) -> Reals:
    return np.round(values, 3)  # shorter to write, send and store


def _catchup(lag: Ints, growth: Reals) -> Reals:
    with np.errstate(divide="ignore", invalid="ignore"):
        falling = np.where((lag != ABSENT) & (growth < 0), _rounded(lag / -growth), np.nan)
    return np.where(lag == 0, 0.0, falling)
