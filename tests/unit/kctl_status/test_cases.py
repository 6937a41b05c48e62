"""Runs the table of cases next to this file (rules: docs/status.md)."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks._burrow import Burrow, BurrowStatus
from kctl.rows.partitions import ResetPolicy
from kctl.status.owners import Owner
from kctl.status.rules import StatusRules
from kctl.status.words import Status
from tests.partitions import Row, RowAssessor

PAGE = (Path(__file__).parents[3] / "docs" / "status.md").read_text(encoding="utf-8")
CASES = Path(__file__).with_name("cases.md").read_text(encoding="utf-8")
RULES = StatusRules()
Judgement = tuple[Status, str]
WELL = {"idle", "ok", "paused", "starting", "rebalancing", "unknown"}
BURROW_S = {"OK": None, "none": None, "WARN": "warn", "STALL": "stalled", "STOP": "stopped", "REWIND": "rewind"}


class Seen(NamedTuple):
    at: float
    committed: int | None
    end: int | None
    start: int | None
    is_repeated: bool  # whether the same offset was committed again


class Case(NamedTuple):
    name: str
    seen: str
    reader: str
    status: str
    burrow: str
    why: str


def cases() -> list[Case]:
    rows = [line for line in CASES.splitlines() if line.startswith("| ")][1:]
    return [Case(*(cell.strip().strip("`") for cell in row.split("|")[1:-1])) for row in rows]


@cache
def observations(seen: str) -> tuple[list[Seen], float]:
    """Returns what was seen at each second, and the last second."""
    jumps: dict[int, tuple[int | None, ...] | None] = {}
    repeated: set[int] = set()
    steps: list[tuple[range, tuple[int, ...]]] = []
    for part in seen.split(", "):
        when, what = part.split(" ")
        if ".." in when:
            first, last, every = (int(number) for number in re.split(r"\.\.|/", when))
            steps.append((range(first, last + 1, every), tuple(int(number) for number in what.split("/"))))
            continue
        if "!" in what:
            repeated.add(int(when))
        numbers = tuple(None if number == "-" else int(number.strip("!")) for number in what.split("/"))
        jumps[int(when)] = None if what == "-" else (*numbers, 0)[:3]
    last = max([*jumps, *(step[0][-1] for step in steps)])
    found: list[Seen] = []
    now: tuple[int | None, ...] | None = None
    for second in range(last + 1):
        now = jumps.get(second, now)
        for times, more in steps:
            if second in times and now is not None:
                now = tuple(None if old is None else old + new for old, new in zip(now, (*more, 0)[:3], strict=True))
        if now is not None:
            committed, end, start = now
            found.append(Seen(float(second), committed, end, start, second in repeated))
    return found, float(last)


def reader(words: str) -> Owner:
    """A worker in that state, or `nobody`, `attached` or `client` as in the table of cases."""
    kind, *more = words.split(" ")
    reported = dict(word.split("=") for word in more if "=" in word)
    state = next((word for word in more if "=" not in word), None)

    def seconds(name: str) -> float | None:
        return float(reported[name]) if name in reported else None

    trigger = None if kind in ("attached", "client") else seconds("trigger") or 0.0
    if kind in ("client", "nobody"):
        return Owner(None, state, trigger, members=int(reported["members"]) if "members" in reported else None)
    return Owner("worker-0", "running" if kind == "attached" else kind, trigger, seconds("last"), seconds("batch"))


def allowed_lag(words: str) -> int:
    allowed = re.search(r" allowed=(\d+)", words)
    return int(allowed[1]) if allowed else 0


def judged(seen: str, words: str) -> Judgement:
    [found] = judged_together([(seen, words)])
    return found


def judged_together(given: Sequence[tuple[str, str]], shift: float = 0.0) -> list[Judgement]:
    """Judges each case as one partition among all of them, because one by one would take minutes."""
    found: dict[int, Judgement] = {}
    kinds = [(allowed_lag(words), _polls(seen)) for seen, words in given]
    for kind in set(kinds):
        found |= _judged_with(*kind, {n: given[n] for n, each in enumerate(kinds) if each == kind}, shift)
    return [found[n] for n in range(len(given))]


def _polls(seen: str) -> tuple[int, int]:
    """The first second of a poll, and the seconds between polls, which are ten in long cases to save time."""
    last = int(observations(seen)[1])
    return (last % 10, 10) if last > 600 else (0, 1)


def _judged_with(
    allowed: int, polls: tuple[int, int], given: Mapping[int, tuple[str, str]], shift: float
) -> dict[int, Judgement]:
    assessor = RowAssessor(StatusRules(hold_seconds=0.0), allowed)
    owners = {n: reader(words) for n, (_, words) in given.items()}
    seen = {n: observations(seen) for n, (seen, _) in given.items()}
    rows = {
        n: Row("orders", n, None, None, None, None, None, owner.name, 1, 0.0, ResetPolicy.NONE)
        for n, owner in owners.items()
    }
    reported = {n: {each.at: each for each in found} for n, (found, _) in seen.items()}
    latest, judgements = dict.fromkeys(given, 0.0), {}
    first, seconds = polls
    for second in map(float, range(first, int(max(last for _, last in seen.values())) + 1, seconds)):
        running = [n for n, (_, last) in seen.items() if second <= last]
        for n in running:
            each = reported[n].get(second)
            if each is not None:
                latest[n] = second
                rows[n] = rows[n]._replace(start=each.start, committed=each.committed, end=each.end)
        aged = [rows[n]._replace(age_seconds=second - latest[n]) for n in running]
        assessments = assessor.assess(aged, lambda row: owners[row.partition], second + shift, second)
        for n, assessment in zip(running, assessments, strict=True):
            if second == seen[n][1]:
                judgements[n] = assessment.status, assessment.reason
    return judgements


def judged_cases(given: Sequence[Case], shift: float = 0.0) -> dict[str, Judgement]:
    found = judged_together([(case.seen, case.reader) for case in given], shift)
    return {case.name: judgement for case, judgement in zip(given, found, strict=True)}


def judged_by_burrow(seen: str, words: str) -> BurrowStatus:
    burrow, committed = Burrow(), None
    reported, last = observations(seen)
    for each in reported:
        if each.end is not None:
            burrow.on_end(each.at, each.end)
        if each.committed is not None and (each.committed != committed or each.is_repeated):
            burrow.on_commit(each.at, each.committed)
        committed = each.committed
    return burrow.status(last, allowed_lag(words))


@pytest.mark.shows("a hundred cases test twelve statuses with their reasons")
def test_the_cases_are_judged_as_on_the_page() -> None:
    found = judged_cases(cases())

    wrong = {case.name: (found[case.name], case.status) for case in cases() if found[case.name][0].value != case.status}
    assert wrong == {}
    assert [name for name, (_, reason) in found.items() if not re.search(r"[a-z]{3}", reason)] == []


def test_burrow_judges_the_cases_as_on_the_page_and_a_difference_has_its_reason() -> None:
    for case in cases():
        is_same = BURROW_S[case.burrow] is None if case.status in WELL else BURROW_S[case.burrow] == case.status

        assert judged_by_burrow(case.seen, case.reader).value == case.burrow, case.name
        assert (case.why == "") == is_same, case.name


def test_no_judgement_depends_on_what_time_it_is() -> None:
    shorter = [case for case in cases() if observations(case.seen)[1] < 200]

    assert judged_cases(shorter, shift=1e6) == judged_cases(shorter)


@pytest.mark.shows("silence, rising lag, rewinds, bursts, lost and unread messages have their own cases")
def test_the_reason_tells_an_offset_that_is_gone_from_one_that_never_was() -> None:
    assert judged("0 -/100, 90 -/100", "nobody")[1].startswith("nothing was ever committed, while 100 messages wait")
    assert judged("0 50/50, 10 -/50, 90 -/50", "nobody")[1].startswith("the committed offset is gone, while 50 mess")
    assert judged("0 50/50, 1 60/60, 200 60/61", "nobody")[1].startswith("no worker has it; the last commit is 199 s")


def test_the_page_explains_each_status_with_a_case_and_names_the_measures_with_their_defaults() -> None:
    table = re.findall(r"^\| `(\w+)` \|", PAGE.split("\n## ")[0], re.MULTILINE)

    assert table == [status.value for status in Status]
    assert {case.status for case in cases()} == set(table)
    for name in ("window_seconds", "hold_seconds", "batch_limit_seconds"):
        assert f"`{name}` ({getattr(RULES, name):.0f})" in PAGE
