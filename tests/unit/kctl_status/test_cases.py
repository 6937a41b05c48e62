"""docs/status.md describes how partitions are judged; its table of cases is run as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kctl.status.rules import Judgement, Owner, Rules, judge
from kctl.status.window import Observation, Window
from kctl.status.words import Status

PAGE = (Path(__file__).parents[3] / "docs" / "status.md").read_text(encoding="utf-8")
RULES = Rules()
Timeline = list[tuple[float, int, int] | None]


def cases() -> list[tuple[str, str, str, str]]:
    rows = [line for line in PAGE.split("\n## Cases\n")[1].splitlines() if line.startswith("| ")][1:]
    found = [tuple(cell.strip().strip("`") for cell in row.split("|")[1:-1]) for row in rows]
    return [(name, seen, reader, status) for name, seen, reader, status in found]


def observations(seen: str) -> tuple[list[Observation], float]:
    """What a collection every second saw, and the time of the last."""
    jumps: dict[float, tuple[int, int] | None] = {}
    steps: list[tuple[range, int, int]] = []
    for part in seen.split(", "):
        when, what = part.split(" ")
        if ".." in when:
            numbers = [int(number) for number in re.split(r"\.\.|/", when)]
            committed, end = (int(number) for number in what.split("/"))
            steps.append((range(numbers[0], numbers[1] + 1, numbers[2]), committed, end))
        else:
            pair = None if what == "-" else what.split("/")
            jumps[int(when)] = None if pair is None else (int(pair[0]), int(pair[1]))
    last = max([*jumps, *(step[0][-1] for step in steps)])
    found, now = [], None
    for second in range(int(last) + 1):
        if second in jumps:
            now = jumps[second]
        for times, committed, end in steps:
            if second in times and now is not None:
                now = (now[0] + committed, now[1] + end)
        is_reported = jumps.get(last, ...) is not None or second <= max((t for t in jumps if t != last), default=-1)
        if now is not None and is_reported:
            found.append(Observation(float(second), *now))
    return found, float(last)


def reader(words: str) -> Owner:
    state, *more = words.split(" ")
    reported = dict(word.split("=") for word in more if "=" in word)
    fleet = next((word for word in more if "=" not in word), None)

    def seconds(name: str) -> float | None:
        return float(reported[name]) if name in reported else None

    name = None if state == "nobody" else "worker-0"
    return Owner(name, fleet if name is None else state, seconds("trigger") or 0.0, seconds("last"), seconds("batch"))


def judged(seen: str, words: str, shift: float = 0.0) -> Judgement:
    window, owner = Window(), reader(words)
    reported, last = observations(seen)
    for at, committed, end in reported:
        window.add(Observation(at + shift, committed, end), owner.span_seconds(RULES))
    return judge(window, owner, RULES, last + shift)


@pytest.mark.parametrize(("name", "seen", "words", "status"), cases(), ids=lambda text: text if " " in text else "")
def test_the_cases_are_judged_as_on_the_page(name: str, seen: str, words: str, status: str) -> None:
    found, reason = judged(seen, words)

    assert found.value == status, reason
    assert re.search(r"[a-z]{3}", reason)


@pytest.mark.parametrize(("name", "seen", "words", "status"), cases(), ids=lambda text: text if " " in text else "")
def test_no_judgement_depends_on_what_time_it_is(name: str, seen: str, words: str, status: str) -> None:
    assert judged(seen, words, shift=1e6) == judged(seen, words)


@pytest.mark.parametrize("name", ["messages wait, no batch begins", "the reader is dead and nobody comes"])
def test_a_commit_ends_the_silence(name: str) -> None:
    seen, words = next((seen, words) for its, seen, words, _ in cases() if its == name)
    reported, last = observations(seen)

    found, _ = judged(f"{seen}, {last + 1:.0f} {reported[-1].end}/{reported[-1].end}", words)

    assert found in (Status.OK, Status.IDLE)


def test_every_status_is_explained_and_has_a_case() -> None:
    table = re.findall(r"^\| `(\w+)` \|", PAGE.split("\n## ")[0], re.MULTILINE)

    assert table == [status.value for status in Status]
    assert {status for *_, status in cases()} == set(table)


def test_the_page_names_the_measures_with_their_defaults() -> None:
    reported = [
        re.findall(rf"`{name}` \((\d+)\)", PAGE) for name in ("window_seconds", "hold_seconds", "batch_limit_seconds")
    ]

    assert [float(found[0]) for found in reported] == [
        RULES.window_seconds,
        RULES.hold_seconds,
        RULES.batch_limit_seconds,
    ]
