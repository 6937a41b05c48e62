"""The assessor of many partitions: keeps what was seen and judges all at once, collection by collection. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kctl.status.assessments import AssessmentColumns, Assessments
from kctl.status.history import ABSENT, History, SeenOffsets, Uncommitted
from kctl.status.judgements import Hysteresis
from kctl.status.judgements import NUMBERS
from kctl.status.observations import Bools, Ints, Reals, Rows
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
        self._see(reported, owners, allowed_lag)
        judged = judge(seen, owners, rules, allowed_lag, now)
        held = self._hysteresis.settle(judged.status, now, rules.hold_seconds, is_blind(seen, rules, now))
        span = span_seconds(cycle_seconds(seen, owners), rules)
        growth = _rounded(growth_per_second(seen, span))
        growth[(lag == ABSENT) | (judged.status == NUMBERS[Status.UNKNOWN])] = np.nan
        lag = np.where((lag != ABSENT) & (lag <= allowed_lag), 0, lag)
        waited = lag_seconds(lag, self._processed.timestamp, seen.caught_up_at(), now, now_unix)
        complete = _rounded(seen.complete(span))
        return Assessments(
            AssessmentColumns(
                self._hysteresis.status, held, judged, owners, _rounded(waited), growth, _catchup(lag, growth), complete
            )
        )

    def _see(self, reported: Reported, owners: Owners, allowed_lag: Ints) -> None:
        seen = self._history
        if reported.timestamp is not None and reported.position is not None:
            self._processed.add(reported.timestamp, reported.position, reported.committed)
        self._begin_anew(reported)
        read = np.where(seen.is_lag_known, reported.lag_from, reported.start)
        is_known = (read != ABSENT) & (reported.end != ABSENT)
        offsets = SeenOffsets(reported.at, read, reported.end, reported.start)
        seen.add(offsets, is_known, kept_seconds(cycle_seconds(seen, owners)), allowed_lag)

    def _begin_anew(self, reported: Reported) -> None:
        """Begins anew where lag begins to be counted from something else: to go from a position to the first commit, or
        from a commit that is gone to the log start, is no rewind."""
        seen = self._history
        has_commit, had_commit = reported.committed != ABSENT, seen.uncommitted == Uncommitted.COMMITTED
        is_lag_known, is_seen = reported.lag_from != ABSENT, ~np.isnan(seen.newest.at)
        first = np.flatnonzero(has_commit & ~had_commit)
        if len(first):
            at = np.where(is_seen, reported.at, np.nan)[first]
            seen.begin(first, _kinds(first, Uncommitted.COMMITTED), _all(first), at)
        lost = np.flatnonzero(~has_commit & (had_commit | (seen.is_lag_known != is_lag_known)))
        if len(lost):
            is_gone = (seen.uncommitted == Uncommitted.GONE) | (had_commit & is_seen)
            kinds = np.where(is_gone[lost], Uncommitted.GONE, Uncommitted.NEVER).astype(np.int8)
            seen.begin(lost, kinds, is_lag_known[lost], np.full(len(lost), np.nan))


def _kinds(rows: Rows, kind: Uncommitted) -> NDArray[np.int8]:
    return np.full(len(rows), kind, np.int8)


def _all(rows: Rows) -> Bools:
    return np.ones(len(rows), np.bool_)


def _rounded(values: Reals) -> Reals:
    """Rounds to thousandths: more digits would only be longer to write, to send and to store."""
    return np.round(values, 3)


def _catchup(lag: Ints, growth: Reals) -> Reals:
    with np.errstate(divide="ignore", invalid="ignore"):
        falling = np.where((lag != ABSENT) & (growth < 0), _rounded(lag / -growth), np.nan)
    return np.where(lag == 0, 0.0, falling)
