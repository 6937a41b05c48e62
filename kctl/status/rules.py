"""The rules for partitions: pure functions of observations in a time window. docs/status.md has the reasons.

Micro-batches commit in jumps, so the rules compare the lag only right after commits. The allowed wait for a commit
depends on the trigger interval, the length of batches and the waits for earlier commits. A rule judges all partitions
at once, because judging 100,000 partitions one by one takes a thousand times as long.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kctl.rows.columns import ABSENT, Bools, Ints, Reals, Rows
from kctl.status.history import History
from kctl.status.judgements import JudgementReason, Judgements
from kctl.status.observations import WINDOW, Numbers
from kctl.status.owners import UNSEEN, Owners
from kctl.status.words import NUMBERS, Status

_CYCLES_OF_SILENCE = 3.0
_CYCLES_OF_A_WINDOW = 8.0
_LONGEST_WINDOW_SECONDS = 86_400.0
_CYCLES_KEPT = 16.0
_LEAST_KEPT_SECONDS = 3600.0
_UNLEARNED = 1.5
_AHEAD_SECONDS = 10.0
_SOON_SECONDS = 3600.0
_REWIND_SECONDS = 900.0
_LEAST_RISE = 0.03
_LEAST_COMMITS = 2
_RISES = 1.5
_LONGER = 4.0
_TRANSACTION_SECONDS = 60.0
"""How long a transaction may be open: a producer's default `transaction.timeout.ms`."""
_HANGING_SECONDS = 900.0
"""A transaction that is open for longer hangs: a broker's default `transaction.max.timeout.ms`."""
_MOST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class StatusRules:
    """Settings of the section `[status]`, in seconds."""

    window_seconds: float = 60.0
    hold_seconds: float = 5.0
    batch_limit_seconds: float = 600.0
    blind_seconds: float = inf
    """Offsets older than this, or than the window, are too old for a judgement."""


def allowed_lag(settings: Sequence[str], group: str) -> int:
    """Returns the lag that `group` may have: MESSAGES of the first matching `PATTERN=MESSAGES`, or else 0."""
    pairs = (setting.rpartition("=") for setting in settings)
    return next((int(messages) for pattern, _, messages in pairs if fnmatchcase(group, pattern)), 0)


def cycle_seconds(seen: History, owners: Owners) -> Reals:
    known = np.fmax(
        np.fmax(seen.cadence_seconds, owners.seconds("trigger_seconds")), owners.seconds("last_batch_seconds")
    )
    return np.fmax(known, 0.0)


def span_seconds(cycle: Reals, rules: StatusRules) -> Reals:
    """Returns the window's length: `window_seconds`, or several times `cycle` (up to a day) if that is longer."""
    return np.maximum(rules.window_seconds, np.minimum(_CYCLES_OF_A_WINDOW * cycle, _LONGEST_WINDOW_SECONDS))


def kept_seconds(cycle: Reals) -> Reals:
    """Returns how long to keep observations, long enough to find a reader that is only slightly too slow."""
    return np.maximum(_LEAST_KEPT_SECONDS, np.minimum(_CYCLES_KEPT * cycle, _LONGEST_WINDOW_SECONDS))


def is_blind(seen: History, owners: Owners, rules: StatusRules, now: float) -> Bools:
    """Whether the newest offsets are too old for a judgement."""
    return now - seen.newest.at > min(rules.window_seconds, rules.blind_seconds) + owners.seconds("interval_seconds")


class _Case(NamedTuple):
    seen: History
    owners: Owners
    rules: StatusRules
    allowed_lag: Ints
    now: float
    cycle: Reals
    span: Reals
    lag: Ints
    limit: Reals  # how long messages may be pending without a commit

    def quiet(self, rows: Rows) -> Reals:
        quiet = self.seen.newest.at[rows] - self.seen.waiting_since[rows]
        return np.where(np.isnan(quiet), 0.0, quiet)


_Rule = Callable[[_Case, Rows, Judgements], Bools]
"""Writes its findings for matching rows; returns which of the rows match."""


def judge(
    seen: History, owners: Owners, rules: StatusRules, allowed_lag: Ints, now: float, stored: Ints | None = None
) -> Judgements:
    """Judges each partition at `now` by the first matching rule, without hysteresis. `stored` counts each partition's
    messages in the storage, and is None without a storage."""
    cycle, lag = cycle_seconds(seen, owners), seen.newest.lag
    limit = _normal_silence(seen, owners, rules, cycle)
    case = _Case(seen, owners, rules, allowed_lag, now, cycle, span_seconds(cycle, rules), lag, limit)
    found, rows = Judgements(lag, stored), np.arange(len(lag))
    for rule in _RULES:
        if not len(rows):
            break
        rows = rows[~rule(case, rows, found)]
    return found


def _normal_silence(seen: History, owners: Owners, rules: StatusRules, cycle: Reals) -> Reals:
    # With a trigger of an hour, a warning must not be three hours late.
    limit = np.maximum(rules.window_seconds, np.minimum(_CYCLES_OF_SILENCE * cycle, cycle + rules.batch_limit_seconds))
    is_learned = ~np.isnan(owners.seconds("trigger_seconds")) | ~np.isnan(seen.cadence_seconds)
    unlearned = np.where(owners.has_no_members, 0.0, rules.batch_limit_seconds)
    unlearned = np.where(np.isnan(seen.moved_at), unlearned, _UNLEARNED * rules.batch_limit_seconds)
    limit = np.where(is_learned, limit, np.maximum(limit, unlearned))
    # A batch past its limit is no excuse, however long batches are.
    is_long = owners.seconds("batch_running_seconds") > rules.batch_limit_seconds
    return np.where(is_long, rules.window_seconds, limit)


def _nothing_seen(case: _Case, rows: Rows, found: Judgements) -> Bools:
    fits: Bools = case.seen.rows.count[rows] == 0
    found.put(rows[fits], Status.UNKNOWN, JudgementReason.NOTHING_KNOWN)
    return fits


def _lag_not_known(case: _Case, rows: Rows, found: Judgements) -> Bools:
    fits: Bools = ~case.seen.is_lag_known[rows]
    if fits.any():
        fits &= (case.owners.is_named | case.owners.has_members)[rows]
        found.put(rows[fits], Status.UNKNOWN, JudgementReason.NO_LAG, first=case.seen.uncommitted[rows[fits]])
    return fits


def _blind(case: _Case, rows: Rows, found: Judgements) -> Bools:
    fits: Bools = is_blind(case.seen, case.owners, case.rules, case.now)[rows]
    found.put(rows[fits], Status.UNKNOWN, JudgementReason.BLIND, case.now - case.seen.newest.at[rows[fits]])
    return fits


def _ahead(case: _Case, rows: Rows, found: Judgements) -> Bools:
    newest = case.seen.newest
    fits: Bools = newest.at[rows] - case.seen.ahead_since[rows] >= _AHEAD_SECONDS
    these = rows[fits]
    committed = newest.committed[these]
    found.put(these, Status.LOSING, JudgementReason.AHEAD, None, committed, committed - newest.end[these])
    return fits


def _overtaken(case: _Case, rows: Rows, found: Judgements) -> Bools:
    fits: Bools = (case.lag[rows] > case.allowed_lag[rows]) & (case.seen.start[rows] != ABSENT)
    fits &= case.seen.newest.committed[rows] < case.seen.start[rows]
    these = rows[fits]
    lost = case.seen.start[these] - case.seen.newest.committed[these]
    found.put(these, Status.LOSING, JudgementReason.REMOVED, None, lost)
    return fits


def _overtaken_soon(case: _Case, rows: Rows, found: Judgements) -> Bools:
    seen = case.seen
    fits: Bools = (case.lag[rows] > case.allowed_lag[rows]) & ~np.isnan(seen.removed_at[0, rows])
    if not fits.any():
        return fits
    [chosen] = np.nonzero(fits)
    these = rows[chosen]
    at, start, committed = seen.removed_at[:, these], seen.removed_start[:, these], seen.removed_committed[:, these]
    seconds, removed, read = at[1] - at[0], start[1] - start[0], committed[1] - committed[0]
    horizon = np.maximum(_SOON_SECONDS, seconds)
    above = seen.newest.committed[these] - seen.start[these]
    # Each removal must bring the log start nearer to the commit. If the removal exceeds the lag, the consumer keeps up.
    is_near = (removed > read) & (case.lag[these] > removed) & (seen.newest.at[these] - at[1] <= horizon)
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.maximum(above / removed, (committed[1] - start[1]) / (removed - read)) * seconds
    is_near &= left < horizon
    fits[chosen] = is_near
    found.put(these[is_near], Status.LOSING, JudgementReason.OVERTAKEN, left[is_near], above[is_near])
    return fits


def _owner_is(word: str, status: Status, reason: JudgementReason) -> _Rule:
    def rule(case: _Case, rows: Rows, found: Judgements) -> Bools:
        fits: Bools = case.owners.is_in(word)[rows]
        found.put(rows[fits], status, reason)
        return fits

    return rule


def _behind_transaction(case: _Case, rows: Rows, found: Judgements) -> Bools:
    seconds = case.owners.seconds("transaction_seconds")[rows]
    fits: Bools = seconds > _TRANSACTION_SECONDS
    these, seconds = rows[fits], seconds[fits]
    is_hanging = seconds > _HANGING_SECONDS
    status = np.where(is_hanging, NUMBERS[Status.STALLED], NUMBERS[Status.WARN]).astype(np.int8)
    found.put(these, status, JudgementReason.TRANSACTION, seconds, case.owners.behind_transaction[these])
    return fits


def _caught_up(case: _Case, rows: Rows, found: Judgements) -> Bools:
    fits: Bools = case.lag[rows] <= case.allowed_lag[rows]
    these = rows[fits]
    silent = case.seen.newest.at[these] - case.seen.rows.end_since[these]
    is_quiet = silent >= case.rules.window_seconds
    if found.stored is not None:
        is_quiet &= found.stored[these] <= 0
    found.put(these[~is_quiet], Status.OK, JudgementReason.CAUGHT_UP)
    found.put(these[is_quiet], Status.IDLE, JudgementReason.QUIET, silent[is_quiet])
    return fits


def _silent(case: _Case, rows: Rows, found: Judgements) -> Bools:
    quiet, limit, owners = case.quiet(rows), case.limit[rows], case.owners
    fits: Bools = quiet > limit
    these, quiet, limit = rows[fits], quiet[fits], limit[fits]
    running, last = owners.seconds("batch_running_seconds")[these], owners.seconds("last_batch_seconds")[these]
    is_named, has_members = owners.is_named[these], owners.has_members[these]
    is_seen = is_named & ~owners.is_in(UNSEEN)[these]
    status = np.where(is_seen | has_members, NUMBERS[Status.STALLED], NUMBERS[Status.STOPPED]).astype(np.int8)
    found.put(these, status, JudgementReason.SILENT, quiet, case.seen.uncommitted[these])
    # A batch explains the silence since it began; batches that fail and restart do not.
    is_excused = is_named & (running <= case.rules.batch_limit_seconds) & (quiet - running <= limit)
    # A first batch cannot be compared, and a longer one than usual is not yet a broken one.
    is_usual = np.isnan(last) | (running <= limit)
    found.put(these[is_excused & is_usual], Status.OK, JudgementReason.LONG_BATCH)
    found.put(these[is_excused & ~is_usual], Status.WARN, JudgementReason.LONGER_BATCH)
    return fits


def _rewound(case: _Case, rows: Rows, found: Judgements) -> Bools:
    seen = case.seen
    fits: Bools = seen.newest.at[rows] - seen.rewind_at[rows] <= np.maximum(_REWIND_SECONDS, case.span[rows])
    these = rows[fits]
    found.put(these, Status.REWIND, JudgementReason.REWOUND, None, seen.rewind_from[these], seen.rewind_to[these])
    return fits


def _rising(case: _Case, rows: Rows, found: Judgements) -> Bools:
    # Looks first at the window, then at longer and longer times. A consumer that is slightly too slow is found late,
    # because the rise must exceed the growth of lag between two commits.
    seen, fits = case.seen, np.zeros(len(rows), np.bool_)
    [left] = np.nonzero(seen.left_over[rows] > 0)
    cycle = np.maximum(np.maximum(case.cycle[rows], seen.interval_seconds[rows]), 1.0)
    horizon = np.maximum(case.span[rows], 2 * case.rules.window_seconds)
    while len(left):
        these, newest_at = rows[left], seen.newest.at[rows[left]]
        first = seen.rows.held(these, newest_at - horizon[left])
        began, end = seen.rows.at[first, these], seen.rows.end[first, these]
        is_seen = newest_at - began >= horizon[left] / 2
        left, these, first, began, end = left[is_seen], these[is_seen], first[is_seen], began[is_seen], end[is_seen]
        span = seen.newest.at[these] - began
        arriving = (seen.newest.end[these] - end) / span
        least = arriving * np.maximum(cycle[left], _LEAST_RISE * span / 2)
        [maybe] = np.nonzero(seen.left_over[these] > _RISES * least)
        is_rise, low = _rise(case, these[maybe], first[maybe], began[maybe], least[maybe])
        risen = maybe[is_rise]
        found.put(
            these[risen], Status.WARN, JudgementReason.RISING, span[risen], low[is_rise], seen.left_over[these[risen]]
        )
        fits[left[risen]] = True
        is_open = first > 0
        is_open[risen] = False
        left = left[is_open]
        horizon[left] *= _LONGER
    return fits


def _rise(case: _Case, rows: Rows, first: Numbers, began: Reals, least: Reals) -> tuple[Bools, Ints]:
    # Compares halves, so that one dip does not hide a growing lag, and a burst that is being worked off does not look
    # like one. Compares lag right after commits, because every lag grows between commits.
    seen, kept = case.seen, case.seen.rows
    last, count, middle = seen.left_over[rows], kept.count[rows], (began + seen.newest.at[rows]) / 2
    least_late, least_early, most_late, late_commits = (np.full(len(rows), fill) for fill in (_MOST, _MOST, 0, 0))
    for number in range(1, WINDOW):
        committed = kept.committed[number, rows]
        is_commit = (committed != kept.committed[number - 1, rows]) & (number >= first) & (number < count)
        lag, is_late = np.maximum(kept.end[number, rows] - committed, 0), kept.at[number, rows] > middle
        np.minimum(least_early, lag, out=least_early, where=is_commit & ~is_late)
        is_late &= is_commit
        np.minimum(least_late, lag, out=least_late, where=is_late)
        np.maximum(most_late, lag, out=most_late, where=is_late)
        late_commits += is_late
    is_risen = (least_early != _MOST) & (least_early > case.allowed_lag[rows]) & (least_late - least_early > least)
    goes_on = (last - least_late > (_RISES - 1) * least) & (last >= most_late - least)
    return is_risen & goes_on & (late_commits >= _LEAST_COMMITS), least_early


def _changing_hands(case: _Case, rows: Rows, found: Judgements) -> Bools:
    seen, owners = case.seen, case.owners
    is_starting, is_sharing = owners.is_starting[rows], owners.is_in("rebalancing")[rows]
    found.put(rows[is_starting], Status.STARTING, JudgementReason.STARTING)
    found.put(rows[is_sharing], Status.REBALANCING, JudgementReason.REBALANCING)
    is_named, moved_at = owners.is_named[rows], seen.moved_at[rows]
    is_unclear = ~(is_starting | is_sharing)
    never = is_unclear & np.isnan(moved_at) & ~(is_named & ~np.isnan(owners.seconds("trigger_seconds")[rows]))
    found.put(rows[never], Status.UNKNOWN, JudgementReason.NO_COMMIT, case.quiet(rows[never]))
    last = seen.newest.at[rows] - moved_at
    long_ago = is_unclear & ~never & ~is_named & ~owners.has_members[rows] & (last > case.limit[rows])
    found.put(rows[long_ago], Status.UNKNOWN, JudgementReason.OLD_COMMIT, last[long_ago])
    return is_starting | is_sharing | never | long_ago


def _in_time(_: _Case, rows: Rows, found: Judgements) -> Bools:
    found.put(rows, Status.OK, JudgementReason.IN_TIME)
    return np.ones(len(rows), np.bool_)


_RULES: tuple[_Rule, ...] = (
    _owner_is("elsewhere", Status.ELSEWHERE, JudgementReason.ELSEWHERE),
    _nothing_seen,
    _lag_not_known,
    _blind,
    _ahead,
    _overtaken,
    _overtaken_soon,
    _owner_is("paused", Status.PAUSED, JudgementReason.PAUSED),
    _behind_transaction,
    _caught_up,
    _owner_is("throttled", Status.WARN, JudgementReason.THROTTLED),
    _silent,
    _rewound,
    _rising,
    _changing_hands,
    _in_time,
)


def growth_per_second(seen: History, span: Reals) -> Reals:
    """Returns the growth of the lag in messages per second, or NaN before a second observation.

    Measures from the first commit in the window to the last, because lag always grows between commits. Without two
    commits, measures over the whole window.
    """
    kept, has_two = seen.rows, seen.rows.count > 1
    found = np.where(has_two, 0.0, np.nan)
    [rows] = np.nonzero(has_two & (seen.lagged_at >= kept.at[0]))  # the others never had any lag
    first = kept.held(rows, seen.newest.at[rows] - span[rows])
    begin, end = _commits(kept.committed, rows, first, kept.count[rows] - 1)
    seconds = kept.at[end, rows] - kept.at[begin, rows]
    lags = [np.maximum(kept.end[each, rows] - kept.committed[each, rows], 0) for each in (begin, end)]
    with np.errstate(divide="ignore", invalid="ignore"):
        found[rows] = np.where(seconds > 0, (lags[1] - lags[0]) / seconds, np.nan)
    return found


def _commits(committed: NDArray[Any], rows: Rows, first: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
    begin, end = first.copy(), last.copy()
    oldest, newest = committed[first, rows], committed[last, rows]
    more = np.arange(len(rows))
    while len(more := more[(begin[more] < last[more]) & (committed[begin[more], rows[more]] == oldest[more])]):
        begin[more] += 1
    more = np.arange(len(rows))
    while len(more := more[(end[more] > first[more]) & (committed[end[more] - 1, rows[more]] == newest[more])]):
        end[more] -= 1
    is_none = (end == first) | (end == begin)
    return np.where(is_none, first, begin), np.where(is_none, last, end)
