"""The rules' judgements of many partitions, in columns."""

from collections.abc import Callable
from enum import IntEnum, auto

import numpy as np
from numpy.typing import NDArray

from kctl.rows.columns import Bools, Ints, Reals, Rows, rearranged
from kctl.status.history import Uncommitted
from kctl.status.owners import Owner
from kctl.status.words import NUMBERS, Status

_NO_COMMIT = {Uncommitted.NEVER: "nothing was ever committed", Uncommitted.GONE: "the committed offset is gone"}
_TROUBLE = NUMBERS[Status.WARN]
_NONE = -1


class JudgementReason(IntEnum):
    """The reason of a judgement. `_TEXTS` shows what `seconds`, `first` and `second` mean for each reason."""

    ELSEWHERE = auto()
    NOTHING_KNOWN = auto()
    NO_LAG = auto()
    BLIND = auto()
    AHEAD = auto()
    REMOVED = auto()
    OVERTAKEN = auto()
    PAUSED = auto()
    TRANSACTION = auto()
    CAUGHT_UP = auto()
    QUIET = auto()
    THROTTLED = auto()
    SILENT = auto()
    LONG_BATCH = auto()
    LONGER_BATCH = auto()
    REWOUND = auto()
    RISING = auto()
    STARTING = auto()
    REBALANCING = auto()
    NO_COMMIT = auto()
    OLD_COMMIT = auto()
    IN_TIME = auto()


_SUMMED = frozenset(
    {JudgementReason.REMOVED, JudgementReason.OVERTAKEN, JudgementReason.TRANSACTION, JudgementReason.RISING}
)
"""Reasons whose `first` and `second` are numbers of messages, which can be summed."""


class Judgements:
    """A judgement of each partition. The allowed lag is not subtracted from `lag`."""

    def __init__(self, lag: Ints, stored: Ints | None = None) -> None:
        size = len(lag)
        self.lag, self.stored = lag, stored
        self.status = np.zeros(size, np.int8)
        self._reason = np.zeros(size, np.int8)
        self.seconds = np.zeros(size)
        self.first, self.second = np.zeros(size, np.int64), np.zeros(size, np.int64)

    def put(
        self,
        rows: Rows,
        status: Status | NDArray[np.int8],
        reason: JudgementReason,
        seconds: Reals | None = None,
        first: Ints | NDArray[np.int8] | None = None,
        second: Ints | None = None,
    ) -> None:
        self.status[rows] = NUMBERS[status] if isinstance(status, Status) else status
        self._reason[rows] = reason
        for column, values in ((self.seconds, seconds), (self.first, first), (self.second, second)):
            if values is not None:
                column[rows] = values

    def reason(self, row: int, owner: Owner, rows: Rows | None = None) -> str:
        """Returns the reason of `row` in words. If you pass `rows`, the reason counts the messages of all `rows`."""
        reason, case = JudgementReason(int(self._reason[row])), _Case(self, row, owner)
        if rows is not None:
            alike = rows[self._reason[rows] == reason]
            case.lag = int(np.maximum(self.lag[rows], 0).sum())
            case.stored = 0 if self.stored is None else int(np.maximum(self.stored[rows], 0).sum())
            if reason in _SUMMED:
                case.first, case.second = int(self.first[alike].sum()), int(self.second[alike].sum())
        return _TEXTS[reason](case)


class _Case:
    def __init__(self, judgements: Judgements, row: int, owner: Owner) -> None:
        found = judgements
        self.owner, self.lag = owner, int(found.lag[row])
        self.stored = 0 if found.stored is None else int(found.stored[row])
        # numbers whose meaning depends on the reason
        self.seconds, self.first, self.second = float(found.seconds[row]), int(found.first[row]), int(found.second[row])

    @property
    def waiting(self) -> str:
        if self.stored > 0:
            in_kafka = f"{_messages(self.lag)} in Kafka, and " if self.lag > 0 else ""
            return f"{in_kafka}{_messages(self.stored)} in the storage"
        return _messages(self.lag) if self.lag else "nothing waits"

    @property
    def nobody(self) -> str:
        owner = self.owner
        is_ours = owner.trigger_seconds is not None
        if owner.members is None:
            return "no worker has it" if is_ours else "no reader is known"
        ours = "no worker answers for it, " if is_ours else ""
        return f"{ours}its group has {owner.members or 'no'} member{'s' * (owner.members != 1)}"

    @property
    def reader(self) -> str:
        if self.owner.state == "paused":
            return "paused on request; `kctl resume` ends that"  # perhaps only this partition of its owner's
        if self.owner.waits_for is not None:
            return f"{self.owner.name} waits for the {self.owner.waits_for}"
        return self.nobody if self.owner.name is None else f"{self.owner.name} is {self.owner.state or 'silent'}"

    @property
    def batch(self) -> str:
        running = self.owner.batch_running_seconds
        return "" if running is None else f"batch has been running for {_seconds(running)}"


def _messages(count: int) -> str:
    return "1 message waits" if count == 1 else f"{count} messages wait"


def _caught_up(case: _Case) -> str:
    nobody = "" if case.owner.name or case.owner.members else f"; {case.nobody}"
    return f"{case.waiting}{', as is allowed' if case.lag else ''}{nobody}"


def _silent(case: _Case) -> str:
    nothing = f"nothing has been committed for {_seconds(case.seconds)} while {case.waiting}"
    if case.first != Uncommitted.COMMITTED:
        nothing = f"{_NO_COMMIT[Uncommitted(case.first)]}, while {case.waiting} for {_seconds(case.seconds)}"
    if case.owner.name is not None and case.batch:
        return f"{nothing}: {case.owner.name}'s {case.batch}"
    return f"{nothing}: {case.reader}"


def _longer_batch(case: _Case) -> str:
    last = case.owner.last_batch_seconds
    return f"{case.owner.name}'s {case.batch}, the last took {_seconds(0.0 if last is None else last)}"


def _starting(case: _Case) -> str:
    owner = case.owner
    reader = f"{case.nobody}, one is starting" if owner.name is None else case.reader
    return f"{reader}; {case.waiting}"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"


_TEXTS: dict[JudgementReason, Callable[[_Case], str]] = {
    JudgementReason.ELSEWHERE: lambda case: f"{case.owner.name} reads it, and its own host judges it; {case.waiting}",
    JudgementReason.NOTHING_KNOWN: lambda _: "its committed offset or the offsets of its log are unknown",
    JudgementReason.NO_LAG: lambda case: f"{_NO_COMMIT[Uncommitted(case.first)]}, so lag is not known; {case.reader}",
    JudgementReason.BLIND: lambda case: f"the last offsets are {_seconds(case.seconds)} old",
    JudgementReason.AHEAD: lambda case: (
        f"the committed offset {case.first} is {case.second} above the end of the log, so messages below it will be "
        "skipped"
    ),
    JudgementReason.REMOVED: lambda case: f"{case.first} messages were removed before they were read; {case.waiting}",
    JudgementReason.OVERTAKEN: lambda case: (
        f"retention overtakes it in {_seconds(case.seconds)}: it is {case.first} messages above the log start, "
        f"{case.waiting}"
    ),
    JudgementReason.PAUSED: lambda case: f"{case.reader}; {case.waiting}",
    JudgementReason.TRANSACTION: lambda case: (
        f"{case.first} messages wait behind a transaction that has been open for {_seconds(case.seconds)}: end its "
        "producer, or find it by `kafka-transactions.sh find-hanging` and end it by `abort`"
    ),
    JudgementReason.CAUGHT_UP: _caught_up,
    JudgementReason.QUIET: lambda case: f"nothing has arrived for {_seconds(case.seconds)} and {_caught_up(case)}",
    JudgementReason.THROTTLED: lambda case: f"the storage is full, so {case.owner.name} takes no batch; {case.waiting}",
    JudgementReason.SILENT: _silent,
    JudgementReason.LONG_BATCH: lambda case: f"{case.owner.name}'s {case.batch}; {case.waiting}",
    JudgementReason.LONGER_BATCH: _longer_batch,
    JudgementReason.REWOUND: lambda case: f"the committed offset went back from {case.first} to {case.second}",
    JudgementReason.RISING: lambda case: (
        f"the lag after commits has grown from {case.first} to {case.second} within {_seconds(case.seconds)}"
    ),
    JudgementReason.STARTING: _starting,
    JudgementReason.REBALANCING: lambda case: f"{case.reader}; {case.waiting}",
    JudgementReason.NO_COMMIT: lambda case: (
        f"{case.reader}; no commit has been seen for {_seconds(case.seconds)}; {case.waiting}"
    ),
    JudgementReason.OLD_COMMIT: lambda case: (
        f"{case.reader}; the last commit is {_seconds(case.seconds)} old; {case.waiting}"
    ),
    JudgementReason.IN_TIME: lambda case: f"commits come, {case.waiting}{f'; a {case.batch}' if case.batch else ''}",
}


class Held(IntEnum):
    """Why a partition keeps its status although the rules have found a better status."""

    NO = 0
    NOT_YET_OVER = 1
    NOT_SEEN_TO_BE_OVER = 2


class Hysteresis:
    """The reported statuses of many partitions. A worse status is reported at once. Trouble (`warn` or worse) usually
    ends only after a better status has lasted for a while, so that alerts do not flap."""

    def __init__(self, size: int) -> None:
        self.status = np.full(size, _NONE, np.int8)
        self._better_since = np.full(size, np.nan)

    def choose(self, rows: Rows) -> None:
        self.status = rearranged(self.status, rows, _NONE)
        self._better_since = rearranged(self._better_since, rows, np.nan)

    def settle(self, judged: NDArray[np.int8], now: float, hold_seconds: float, is_blind: Bools) -> NDArray[np.int8]:
        """Updates `status`. Returns a `Held` for each partition: whether and why its old status stays.

        `unknown` and `elsewhere` replace trouble at once. Other better statuses replace trouble only after
        `hold_seconds`. Without recent observations (`is_blind`), only `elsewhere` ends trouble.
        """
        held = np.zeros(len(judged), np.int8)
        is_here = judged != NUMBERS[Status.ELSEWHERE]
        better = np.flatnonzero((judged < self.status) & (self.status >= _TROUBLE) & is_here)
        blind = is_blind[better]
        held[better[blind]] = Held.NOT_SEEN_TO_BE_OVER
        settling = better[~blind & (judged[better] != NUMBERS[Status.UNKNOWN])]
        since = np.where(np.isnan(self._better_since[settling]), now, self._better_since[settling])
        is_held = now - since < hold_seconds
        held[settling[is_held]] = Held.NOT_YET_OVER
        self._better_since.fill(np.nan)
        self._better_since[settling[is_held]] = since[is_held]
        self.status = np.where(held == Held.NO, judged, self.status)
        return held
