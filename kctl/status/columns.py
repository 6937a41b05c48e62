"""The assessor of many partitions: keeps what was seen and judges all at once, collection by collection. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kctl.status.assessments import AssessmentColumns, Assessments
from kctl.status.history import ABSENT, History, SeenOffsets, Uncommitted
from kctl.status.judgements import NUMBERS, Hysteresis
from kctl.status.observations import Ints, Reals, Rows
from kctl.status.owners import Owners
from kctl.status.rules import (
    StatusRules,
    cycle_seconds,
    growth_per_second,
    is_blind,
    judge,
    kept_seconds,
    span_seconds,
)
from kctl.status.words import Status


class Processed:
    """The last record that was stored of each of many partitions, and between which offsets a committed offset may lie
    for it to be the last."""

    def __init__(self, size: int) -> None:
        self.timestamp: Reals = np.broadcast_to(np.float64(np.nan), size)
        """Unix seconds, Kafka's; NaN where it is not known. As the others of no size in memory until there are some: of
        other clients' groups there are none."""
        self._committed: Ints = np.broadcast_to(np.int64(0), size)
        self._position = self._committed

    def choose(self, rows: Rows) -> None:
        """Moves partitions: from now on they are `rows` of those so far, in this order; -1 is a new one."""
        is_old = rows >= 0
        for name, fill in vars(Processed(len(rows))).items():
            column = getattr(self, name)
            chosen = fill.copy() if column.flags.writeable else fill
            if column.flags.writeable:
                chosen[is_old] = column[rows[is_old]]
            setattr(self, name, chosen)

    def add(self, timestamp: Reals, position: Ints, committed: Ints) -> None:
        """Takes in the last processed record; where nothing was reported (its worker is gone, or new), what was known
        before stays as long as the committed offset does not contradict it."""
        is_reported = ~np.isnan(timestamp) & (position != ABSENT)
        at_most = np.where(committed == ABSENT, position, np.minimum(committed, position))
        is_agreed = (committed != ABSENT) & (self._committed <= committed) & (committed <= self._position)
        self.timestamp = np.where(is_reported, timestamp, np.where(is_agreed, self.timestamp, np.nan))
        self._committed = np.where(is_reported, at_most, self._committed)
        self._position = np.where(is_reported, position, self._position)


def lag_seconds(lag: Ints, timestamp: Reals, caught_up_at: Reals, now: float, now_unix: float) -> Reals:
    """The time lag; 0 when nothing waits, NaN when it is not known. Of two bounds from above it is the smaller: the
    last record's timestamp alone would give an hour when, after an hour of silence, one message arrives; the log's
    growth alone is not enough at the start over a backlog. A timestamp of the future counts for nothing."""
    of_record = np.where(timestamp <= now_unix, now_unix - timestamp, np.nan)
    bound = np.fmin(now - caught_up_at, of_record)
    return np.where(lag == 0, 0.0, np.where(lag == ABSENT, np.nan, bound))


class Reported(NamedTuple):
    """The report of a collection on each partition; an offset that is not known is `ABSENT`."""

    at: Reals
    """When the offsets were reported, in monotonic seconds."""
    start: Ints
    committed: Ints
    lag_from: Ints
    """The offset from which lag is counted."""
    end: Ints
    timestamp: Reals | None = None
    """Unix seconds: Kafka's timestamp of the last record that was stored, NaN where it is not known. None: of none."""
    position: Ints | None = None
    stored_messages: Ints | None = None
    """Messages that wait in the storage. None: there is none between Kafka and the consumer."""
    stored_seconds: Reals | None = None
    """The age of the oldest of them, since it was stored."""

    @property
    def lag(self) -> Ints:
        is_known = (self.lag_from != ABSENT) & (self.end != ABSENT)
        return np.where(is_known, np.maximum(self.end - self.lag_from, 0), ABSENT)


class ColumnAssessor:
    """Judges by the column. One thread at a time. Its partitions are known by their places alone: `choose` moves
    them."""

    def __init__(self, rules: StatusRules) -> None:
        """`rules.allowed_lag` is not used: it is given by the column."""
        self._rules = rules
        self._history = History(0)
        self._hysteresis = Hysteresis(0)
        self._processed = Processed(0)

    def choose(self, rows: Rows) -> None:
        """Moves partitions: from now on they are `rows` of those so far, in this order; -1 is a new one. The others are
        forgotten."""
        for each in (self._history, self._hysteresis, self._processed):
            each.choose(rows)

    def assess(self, reported: Reported, owners: Owners, allowed_lag: Ints, now: float, now_unix: float) -> Assessments:
        """Judges a report. `now` is monotonic seconds, `now_unix` the same moment as Unix seconds."""
        seen, rules, lag = self._history, self._rules, reported.lag
        reported = reported._replace(at=np.floor(reported.at * 1000) / 1000)  # as they are kept, to be the same again
        self._see(reported, owners, allowed_lag)
        judged = judge(seen, owners, rules, allowed_lag, now, reported.stored_messages)
        held = self._hysteresis.settle(judged.status, now, rules.hold_seconds, is_blind(seen, rules, now))
        cycle = cycle_seconds(seen, owners)
        span = span_seconds(cycle, rules)
        growth = _rounded(growth_per_second(seen, span))
        growth[(lag == ABSENT) | (judged.status == NUMBERS[Status.UNKNOWN])] = np.nan
        lag = np.where((lag != ABSENT) & (lag <= allowed_lag), 0, lag)
        waited = lag_seconds(lag, self._processed.timestamp, seen.caught_up_at(), now, now_unix)
        waited[judged.status == NUMBERS[Status.ELSEWHERE]] = np.nan  # its worker knows the last record's timestamp
        waited = _rounded(waited)
        oldest = _oldest(waited, reported.stored_messages, reported.stored_seconds)
        columns = waited, growth, _catchup(lag, growth), oldest, cycle
        return Assessments(AssessmentColumns(self._hysteresis.status, held, judged, owners, *columns))

    def _see(self, reported: Reported, owners: Owners, allowed_lag: Ints) -> None:
        seen = self._history
        if reported.timestamp is not None and reported.position is not None:
            self._processed.add(reported.timestamp, reported.position, reported.committed)
        self._begin_anew(reported)
        read = np.where(seen.is_lag_known, reported.lag_from, reported.start)
        is_known = (read != ABSENT) & (reported.end != ABSENT)
        offsets = SeenOffsets(reported.at, read, reported.end, reported.start)
        seen.add(offsets, is_known, kept_seconds(cycle_seconds(seen, owners)), allowed_lag)
        seen.excuse(owners.is_in("paused") | owners.is_in("throttled") | owners.is_in("elsewhere"))

    def _begin_anew(self, reported: Reported) -> None:
        """Begins anew where lag begins to be counted from something else: to go from a position to the first commit, or
        from a commit that is gone to the log start, is no rewind."""
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
    """Returns the ages of the oldest unhandled messages, in Kafka or in the storage: not known if either is not."""
    if stored is None or stored_seconds is None:
        return lag_seconds
    in_storage = np.where(stored == 0, 0.0, np.where(stored == ABSENT, np.nan, stored_seconds))
    return np.maximum(lag_seconds, _rounded(in_storage))


def _rounded(values: Reals) -> Reals:
    """Rounds to thousandths: more digits would only be longer to write, to send and to store."""
    return np.round(values, 3)


def _catchup(lag: Ints, growth: Reals) -> Reals:
    with np.errstate(divide="ignore", invalid="ignore"):
        falling = np.where((lag != ABSENT) & (growth < 0), _rounded(lag / -growth), np.nan)
    return np.where(lag == 0, 0.0, falling)
