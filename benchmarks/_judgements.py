"""What the rules, and Burrow's, make of histories of which the truth is known."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from benchmarks._burrow import Burrow, BurrowStatus
from benchmarks._histories import History, Second, Truth
from kctl.rows.partitions import ResetPolicy
from kctl.status import Owner, Status
from tests.partitions import Row, RowAssessor

__all__ = ["RULES", "Score", "burrow_statuses", "scores", "statuses"]

RULES = {
    "growth": (Truth.SLOW, frozenset({Status.WARN, BurrowStatus.WARN})),
    "silence": (
        Truth.DEAD,
        frozenset({Status.STALLED, Status.STOPPED, BurrowStatus.STALL, BurrowStatus.STOP}),
    ),
}
"""What each rule is to notice, and by which statuses it does."""
_TOGETHER = 50
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


def statuses(histories: Sequence[History]) -> list[list[tuple[Second, str]]]:
    """Ours of each, poll by poll, with the hysteresis that is reported. Those with the same time between polls are
    judged together, as the partitions of a collection are."""
    found: list[list[tuple[Second, str]]] = [[] for _ in histories]
    for seconds in {history.poll_seconds for history in histories}:
        numbers = [n for n, history in enumerate(histories) if history.poll_seconds == seconds]
        for n, polled in zip(numbers, _together([histories[n] for n in numbers], seconds), strict=True):
            found[n] = polled
    return found


def _together(histories: Sequence[History], poll_seconds: int) -> list[list[tuple[Second, str]]]:
    assessor = RowAssessor()
    found: list[list[tuple[Second, str]]] = [[] for _ in histories]
    none = Row("orders", 0, 0, None, None, None, None, None, 1, 0.0, ResetPolicy.NONE)
    rows, seen_at = [none._replace(partition=n) for n in range(len(histories))], [0.0] * len(histories)
    for at in range(0, max(len(history.seconds) for history in histories), poll_seconds):
        polled = {n: history.seconds[at] for n, history in enumerate(histories) if at < len(history.seconds)}
        for n, second in polled.items():
            if second.is_seen:
                rows[n], seen_at[n] = rows[n]._replace(committed=second.committed, end=second.end), second.at
            rows[n] = rows[n]._replace(age_seconds=second.at - seen_at[n], worker=second.owner.name)
        of_now = assessor.assess([rows[n] for n in polled], _owner_in(polled), float(at), float(at)).statuses()
        for n, status in zip(polled, of_now, strict=True):
            found[n].append((polled[n], status))
    return found


def _owner_in(polled: Mapping[int, Second]) -> Callable[[Row], Owner]:
    return lambda row: polled[row.partition].owner


def burrow_statuses(histories: Sequence[History]) -> list[list[tuple[Second, str]]]:
    """Burrow's at the same times; it sees every commit, as it reads them all."""
    return list(map(_of_burrow, histories))


def _of_burrow(history: History) -> list[tuple[Second, str]]:
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


def scores(
    all_histories: Iterable[History], judge: Callable[[Sequence[History]], list[list[tuple[Second, str]]]]
) -> dict[str, Score]:
    """By rule, and `any`: an alarm of whatever kind. Some at a time, for each takes a few megabytes."""
    found = {name: Score() for name in (*RULES, "any")}
    left = iter(all_histories)
    while some := list(islice(left, _TOGETHER)):
        for history, polled in zip(some, judge(some), strict=True):
            for second, status in polled:
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
