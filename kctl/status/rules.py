"""The rules by which a partition is judged: pure functions of what was seen over a window in time.

They are Burrow's idea with other measures: micro-batches commit in jumps, so silence is held against the trigger
interval, the batch in progress and how often commits came so far, and the lag is compared from commit to commit. They
serve our own workers and other clients' groups alike. docs/status.md has the reasons.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kctl.status.window import Observation, Window
from kctl.status.words import Status

__all__ = [
    "Judgement",
    "Owner",
    "Rules",
    "allowed_lag",
    "growth_per_second",
    "is_blind",
    "judge",
    "kept_seconds",
    "span_seconds",
]

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

Judgement = tuple[Status, str]
"""The status and its reason in words."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The measures that the configuration sets (section `[status]`), in seconds."""

    window_seconds: float = 60.0
    hold_seconds: float = 10.0
    batch_limit_seconds: float = 600.0
    allowed_lag: int = 0
    """Messages: with so many nothing counts as waiting."""


def allowed_lag(settings: Sequence[str], group: str) -> int:
    """By the first of `PATTERN=MESSAGES` whose pattern fits the name of the group; 0 if none does."""
    pairs = (setting.rpartition("=") for setting in settings)
    return next((int(messages) for pattern, _, messages in pairs if fnmatchcase(group, pattern)), 0)


@dataclass(frozen=True, slots=True)
class Owner:
    """The worker that reads a partition, or why none does."""

    name: str | None
    """None when no worker answers for the partition."""
    state: str | None = None
    """As it reports itself; without an owner, what the fleet is doing: `starting`, `rebalancing`, or None."""
    trigger_seconds: float | None = 0.0
    """None: not known, as of other clients."""
    last_batch_seconds: float | None = None
    batch_running_seconds: float | None = None
    members: int | None = None
    """Without an owner: how many members the group's coordinator counts; None when it did not answer, and of clients
    that choose their partitions themselves: their group has no protocol type and never a member."""


def cycle_seconds(window: Window, owner: Owner) -> float:
    """From one commit to the next, as things are."""
    cycle = window.cadence_seconds or 0.0
    if owner.trigger_seconds is not None and owner.trigger_seconds > cycle:
        cycle = owner.trigger_seconds
    if owner.last_batch_seconds is not None and owner.last_batch_seconds > cycle:
        cycle = owner.last_batch_seconds
    return cycle


def span_seconds(window: Window, owner: Owner, rules: Rules) -> float:
    """The window that holds enough commits to judge by."""
    return max(rules.window_seconds, min(_CYCLES_OF_A_WINDOW * cycle_seconds(window, owner), _LONGEST_WINDOW_SECONDS))


def kept_seconds(window: Window, owner: Owner) -> float:
    """For so long what was seen is to be kept: so that what is but a little too slow shows too."""
    return max(_LEAST_KEPT_SECONDS, min(_CYCLES_KEPT * cycle_seconds(window, owner), _LONGEST_WINDOW_SECONDS))


def _normal_silence(window: Window, owner: Owner, rules: Rules) -> float:
    """For so long messages may wait without a commit. A batch past its limit excuses nothing any more, however long
    batches are; and of a trigger of an hour nobody wants to learn after three that it does not come."""
    running, cycle = owner.batch_running_seconds, cycle_seconds(window, owner)
    if running is not None and running > rules.batch_limit_seconds:
        return rules.window_seconds
    limit = max(rules.window_seconds, min(_CYCLES_OF_SILENCE * cycle, cycle + rules.batch_limit_seconds))
    if owner.trigger_seconds is not None or window.cadence_seconds is not None:
        return limit
    if window.moved_at is not None:
        return max(limit, _UNLEARNED * rules.batch_limit_seconds)
    return limit if owner.members == 0 else max(limit, rules.batch_limit_seconds)


def is_blind(window: Window, rules: Rules, now: float) -> bool:
    """Whether the newest offsets are too old to be judged by."""
    return window.newest is not None and now - window.newest.at > rules.window_seconds


def judge(window: Window, owner: Owner, rules: Rules, now: float) -> Judgement:
    """The status at `now`, before hysteresis."""
    newest = window.newest
    if newest is None:
        return Status.UNKNOWN, "neither a committed offset nor a position is known"
    if not window.is_lag_known and (owner.name is not None or owner.members):
        reader = _nobody(owner) if owner.name is None else f"{owner.name} is {owner.state or 'silent'}"
        return Status.UNKNOWN, f"{window.uncommitted}, so lag is not known; {reader}"
    if is_blind(window, rules, now):
        return Status.UNKNOWN, f"the last offsets are {_seconds(now - newest.at)} old"
    loss = _ahead(window, newest) or _overtaken(window, newest, rules)
    if loss is not None:
        return Status.LOSING, loss
    if owner.state == "paused":
        return Status.PAUSED, f"{owner.name or 'the group'} is paused; {_waiting(newest)}"
    if newest.lag <= rules.allowed_lag:
        return _caught_up(window, newest, owner, rules)
    # As of the newest offsets: that nothing was seen since is no fault of the consumer's.
    quiet = newest.at - (newest.at if window.waiting_since is None else window.waiting_since)
    limit = _normal_silence(window, owner, rules)
    if owner.state == "throttled":
        return Status.WARN, f"the storage is full, so {owner.name} takes no batch; {_waiting(newest)}"
    if quiet > limit:
        return _silent(window, newest, owner, rules, quiet, limit)
    return (
        _rewound(window, newest, owner, rules)
        or _rising(window, newest, owner, rules)
        or _changing_hands(window, newest, owner, quiet, limit)
        or _in_time(newest, owner)
    )


def _ahead(window: Window, newest: Observation) -> str | None:
    if window.ahead_since is None or newest.at - window.ahead_since < _AHEAD_SECONDS:
        return None
    above = newest.committed - newest.end
    return f"the committed offset {newest.committed} is {above} above the end of the log: up to it messages are skipped"


def _overtaken(window: Window, newest: Observation, rules: Rules) -> str | None:
    """By retention, or soon: from removal to removal the committed offset comes nearer to the log start. Where more is
    removed at once than waits, the log is short and the consumer keeps up."""
    if window.start is None or newest.lag <= rules.allowed_lag:
        return None
    above = newest.committed - window.start
    if above < 0:
        return f"{-above} messages were removed before they were read; {_waiting(newest)}"
    if len(window.removals) < 2:
        return None
    first, last = window.removals
    seconds, removed, read = last.at - first.at, last.start - first.start, last.committed - first.committed
    horizon = max(_SOON_SECONDS, seconds)
    if removed <= read or newest.lag <= removed or newest.at - last.at > horizon:
        return None
    left = max(above / removed, (last.committed - last.start) / (removed - read)) * seconds
    if left >= horizon:
        return None
    return f"retention overtakes in {_seconds(left)}: {above} messages above the log start, {_waiting(newest)}"


def _caught_up(window: Window, newest: Observation, owner: Owner, rules: Rules) -> Judgement:
    nobody = "" if owner.name or owner.members else f"; {_nobody(owner)}"
    nothing = f"{_waiting(newest)}{', as is allowed' if newest.lag else ''}{nobody}"
    silent = newest.at - window.at[window.end.index(newest.end)]  # ends never fall: from there on they are the same
    if silent >= rules.window_seconds:
        return Status.IDLE, f"nothing has arrived for {_seconds(silent)} and {nothing}"
    return Status.OK, nothing


def _silent(window: Window, newest: Observation, owner: Owner, rules: Rules, quiet: float, limit: float) -> Judgement:
    nothing = f"nothing has been committed for {_seconds(quiet)} while {_waiting(newest)}"
    if window.uncommitted is not None:
        nothing = f"{window.uncommitted}, while {_waiting(newest)} for {_seconds(quiet)}"
    if owner.name is None and owner.members:
        return Status.STALLED, f"{nothing}: {_nobody(owner)}"
    if owner.name is None:
        return Status.STOPPED, f"{nothing}: {_nobody(owner)}"
    running = owner.batch_running_seconds
    # A batch explains the silence since it began; batches that fail and begin anew do not.
    if running is not None and running <= rules.batch_limit_seconds and quiet - running <= limit:
        # A first batch has nothing to be held against, and a longer one than usual is not a broken one yet.
        if owner.last_batch_seconds is None or running <= limit:
            return Status.OK, f"{owner.name}'s batch has been running for {_seconds(running)}; {_waiting(newest)}"
        usual = f"the last took {_seconds(owner.last_batch_seconds)}"
        return Status.WARN, f"{owner.name}'s batch has been running for {_seconds(running)}, {usual}"
    if running is not None:
        return Status.STALLED, f"{nothing}: {owner.name}'s batch has been running for {_seconds(running)}"
    return Status.STALLED, f"{nothing}: {owner.name} is {owner.state or 'silent'}"


def _changing_hands(window: Window, newest: Observation, owner: Owner, quiet: float, limit: float) -> Judgement | None:
    owner_state = _nobody(owner) if owner.name is None else f"{owner.name} is {owner.state}"
    if owner.state in ("starting", "joining", "assigned"):
        return Status.STARTING, f"{owner_state}{', one is starting' if owner.name is None else ''}; {_waiting(newest)}"
    if owner.state == "rebalancing":
        return Status.REBALANCING, f"{owner_state}; {_waiting(newest)}"
    if window.moved_at is None and (owner.name is None or owner.trigger_seconds is None):
        return Status.UNKNOWN, f"{owner_state}; no commit has been seen for {_seconds(quiet)}; {_waiting(newest)}"
    last = newest.at - (newest.at if window.moved_at is None else window.moved_at)
    if owner.name is None and not owner.members and last > limit:
        return Status.UNKNOWN, f"{owner_state}; the last commit is {_seconds(last)} old; {_waiting(newest)}"
    return None


def _nobody(owner: Owner) -> str:
    is_ours = owner.trigger_seconds is not None
    if owner.members is None:
        return "no worker has it" if is_ours else "nobody is known to read it"
    ours = "no worker answers for it, " if is_ours else ""
    return f"{ours}its group has {owner.members or 'no'} member{'s' * (owner.members != 1)}"


def _in_time(newest: Observation, owner: Owner) -> Judgement:
    running = owner.batch_running_seconds
    batch = "" if running is None else f"; a batch has been running for {_seconds(running)}"
    return Status.OK, f"commits come, {_waiting(newest)}{batch}"


def _rewound(window: Window, newest: Observation, owner: Owner, rules: Rules) -> Judgement | None:
    back = window.rewind
    if back is None or newest.at - back.at > max(_REWIND_SECONDS, span_seconds(window, owner, rules)):
        return None
    return Status.REWIND, f"the committed offset went back from {back.from_offset} to {back.to_offset}"


def _rising(window: Window, newest: Observation, owner: Owner, rules: Rules) -> Judgement | None:
    """Over the window, and over longer and longer times, as far as anything is known: what is much too slow shows
    soon, what is a little too slow later, when the rise is more than from one commit to the next."""
    cycle = max(cycle_seconds(window, owner), window.interval_seconds, 1.0)
    horizon = max(span_seconds(window, owner, rules), 2 * rules.window_seconds)
    while True:
        first = window.first(newest.at - horizon)
        if newest.at - window.at[first] < horizon / 2:
            return None
        rise = _rise(window, newest, first, cycle, rules.allowed_lag)
        if rise is not None:
            low, high = rise
            within = _seconds(newest.at - window.at[first])
            return Status.WARN, f"the lag after commits has grown from {low} to {high} within {within}"
        if first == 0:
            return None
        horizon *= _LONGER


def _rise(window: Window, newest: Observation, first: int, cycle: float, allowed: int) -> tuple[int, int] | None:
    """The least lag of the first half and the last one, if it was never gone, has clearly risen from half to half, and
    rises still. Halves, because one lucky dip must not hide a lag that grows, nor one burst that is being worked off
    make it seem to; right after commits, because between commits every lag grows."""
    began, last = window.at[first], window.left_over
    arriving = (newest.end - window.end[first]) / (newest.at - began)
    least = arriving * max(cycle, _LEAST_RISE * (newest.at - began) / 2)
    if last <= _RISES * least:
        return None
    middle = bisect_right(window.at, (began + newest.at) / 2, first)
    later = _lags_after_commits(window, middle, len(window.at))
    if len(later) < _LEAST_COMMITS or last - min(later) <= (_RISES - 1) * least or last < max(later) - least:
        return None
    earlier = _lags_after_commits(window, first, middle)
    if not earlier or min(earlier) <= allowed or min(later) - min(earlier) <= least:
        return None
    return min(earlier), last


def _lags_after_commits(window: Window, first: int, end: int) -> list[int]:
    committed = window.committed
    rows = (row for row in range(max(first, 1), end) if committed[row] != committed[row - 1])
    return [max(window.end[row] - committed[row], 0) for row in rows]


def growth_per_second(window: Window, span_seconds: float) -> float | None:
    """Messages by which the lag grows each second: from the first commit in the window to the last, because between
    commits it always grows; over the whole window while there are not two. None before a second observation."""
    newest = window.newest
    if newest is None:
        return None
    committed, last = window.committed, len(window.at) - 1
    first = window.first(newest.at - span_seconds)
    begin, end = first, last
    while begin < last and committed[begin] == committed[first]:
        begin += 1
    while end > first and committed[end - 1] == committed[last]:
        end -= 1
    if end in (first, begin):  # of no commit, or of one
        begin, end = first, last
    if window.at[end] <= window.at[begin]:
        return None
    lags = [max(window.end[row] - committed[row], 0) for row in (begin, end)]
    return (lags[1] - lags[0]) / (window.at[end] - window.at[begin])


def _waiting(newest: Observation) -> str:
    if newest.lag == 0:
        return "nothing waits"
    return "1 message waits" if newest.lag == 1 else f"{newest.lag} messages wait"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"
