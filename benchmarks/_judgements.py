"""What the rules, and Burrow's, make of histories of which the truth is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmarks._burrow import Burrow, BurrowStatus
from benchmarks._histories import History, Second, Truth
from kctl.reduce import PartitionRow
from kctl.rows.partitions import ResetPolicy
from kctl.status import Assessor, Rules, Status

__all__ = ["RULES", "Score", "burrow_statuses", "scores", "statuses"]

RULES = {
    "growth": (Truth.SLOW, frozenset({Status.WARN, BurrowStatus.WARN})),
    "silence": (
        Truth.DEAD,
        frozenset({Status.STALLED, Status.STOPPED, BurrowStatus.STALL, BurrowStatus.STOP}),
    ),
}
"""What each rule is to notice, and by which statuses it does."""
_ALARMS = frozenset().union(*(alarms for _, alarms in RULES.values())) | {
    Status.REWIND,
    Status.LOSING,
    BurrowStatus.REWIND,
}


@dataclass
class Score:
    """Counted in polls."""

    well: int = 0
    false: int = 0
    ill: int = 0
    missed: int = 0
    by_history: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def false_share(self) -> float:
        return self.false / self.well if self.well else 0.0

    @property
    def missed_share(self) -> float:
        return self.missed / self.ill if self.ill else 0.0


def statuses(history: History) -> list[tuple[Second, str]]:
    """Ours, poll by poll, with the hysteresis that is reported."""
    assessor = Assessor(Rules())
    found: list[tuple[Second, str]] = []
    row = PartitionRow("orders", 0, 0, None, None, None, None, None, 1, 0.0, ResetPolicy.NONE)
    seen_at = 0.0
    for second in history.seconds[:: history.poll_seconds]:
        if second.is_seen:
            row, seen_at = row._replace(committed=second.committed, end=second.end), second.at
        aged = row._replace(age_seconds=second.at - seen_at, worker=second.owner.name)
        found.append((second, _assessed(assessor, aged, second)))
    return found


def _assessed(assessor: Assessor, row: PartitionRow, second: Second) -> str:
    [assessment] = assessor.assess([row], lambda _: second.owner, second.at, second.at)
    return assessment.status


def burrow_statuses(history: History) -> list[tuple[Second, str]]:
    """Burrow's at the same times; it sees every commit, as it reads them all."""
    burrow = Burrow()
    found: list[tuple[Second, str]] = []
    for number, second in enumerate(history.seconds):
        if second.is_seen:
            burrow.on_end(second.at, second.end)
        if second.is_commit or number == 0:
            burrow.on_commit(second.at, second.committed)
        if number % history.poll_seconds == 0:
            found.append((second, burrow.status(second.at)))
    return found


def scores(all_histories: Iterable[History], judge: Callable[[History], list[tuple[Second, str]]]) -> dict[str, Score]:
    """By rule, and `any`: an alarm of whatever kind."""
    found = {name: Score() for name in (*RULES, "any")}
    for history in all_histories:
        for second, status in judge(history):
            for name, (truth, alarms) in RULES.items():
                _count(found[name], history, second.truth, truth, is_alarm=status in alarms)
            _count(found["any"], history, second.truth, None, is_alarm=status in _ALARMS)
    return found


def _count(score: Score, history: History, truth: Truth, noticed: Truth | None, *, is_alarm: bool) -> None:
    if truth is Truth.UNCLEAR:
        return
    if truth is Truth.WELL:
        score.well += 1
        score.false += is_alarm
        score.by_history[f"{history.number} {history.kind}", "false"] += is_alarm
    elif noticed is None or truth is noticed:
        score.ill += 1
        score.missed += not is_alarm
        score.by_history[f"{history.number} {history.kind}", "missed"] += not is_alarm
