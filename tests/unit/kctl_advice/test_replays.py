"""Whole days of a fleet that follows the advice, on a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks._loads import LOADS, SLOT_SECONDS, Advised, Load, Slot, run
from kctl.advice.adviser import Adviser, Sample
from kctl.advice.window import Work
from kctl.config.sections import AdviceSection
from kctl.rows.advice import Answer

RULES = AdviceSection()
USUAL_SECONDS = 4 * SLOT_SECONDS
_TOLERATED = 1.1
"""The advice tolerates a shortfall of 10 %, so catching up may take 10 % longer."""
BY_NAME = {load.name: load for load in LOADS}
EACH = pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
MET = pytest.mark.parametrize("load", [load for load in LOADS if load.can_be_met], ids=lambda load: load.name)


@cache
def slots(load: Load, seed: int = 1) -> list[Slot]:
    return list(run(load, Advised(), seed))


def changes(found: list[Slot]) -> list[float]:
    return [after.at for before, after in pairwise(found) if after.workers != before.workers]


@pytest.mark.shows("never two changes within five minutes, over whole days of eleven loads")
@EACH
def test_five_minutes_pass_between_two_changes(load: Load) -> None:
    for each in (
        changes(slots(load)),
        [after.at for before, after in pairwise(slots(load)) if after.sinkers != before.sinkers],
    ):
        assert all(later - earlier >= RULES.gap_seconds for earlier, later in pairwise(each))


@pytest.mark.shows("no change in hours of steady load")
@pytest.mark.parametrize(("rate", "workers"), [(500.0, 1), (1390.0, 3), (2500.0, 4), (2737.0, 4), (3000.0, 5)])
def test_a_steady_load_changes_nothing(rate: float, workers: int) -> None:
    assert changes(slots(Load(name=f"steady {rate}", rate=lambda _: rate, workers=workers, hours=4.0))) == []


@pytest.mark.shows("the usual lag is back within the catch-up time after the last permitted step")
@MET
def test_the_backlog_is_gone_within_the_catch_up_time_of_the_last_step(load: Load) -> None:
    found = slots(load)
    within = round(_TOLERATED * (RULES.catch_up_seconds + RULES.pause_seconds) / SLOT_SECONDS)
    steps = [
        number
        for number, (before, after) in enumerate(pairwise(found), 1)
        if after.workers > before.workers and is_last_step(before)
    ]

    late = {found[number].at: found[number + within].worst for number in steps if number + within < len(found)}

    assert all(worst <= USUAL_SECONDS for worst in late.values()), late
    assert found[-1].worst <= USUAL_SECONDS
    assert found[-1].pending <= found[-1].rate * USUAL_SECONDS


def is_last_step(slot: Slot) -> bool:
    return slot.advice is not None and slot.advice.workers == slot.advice.needed


@pytest.mark.parametrize(
    ("name", "answer"),
    [("hot partition", Answer.HOT), ("slow storage", Answer.STORAGE), ("slow handler", Answer.HANDLER)],
)
def test_what_more_processes_cannot_meet_is_named_after_at_most_one_rise(name: str, answer: Answer) -> None:
    found = slots(BY_NAME[name])

    assert found[-1].advice is not None
    assert found[-1].advice.answer is answer
    rises = [
        after for before, after in pairwise(found) if (after.workers, after.sinkers) > (before.workers, before.sinkers)
    ]
    assert len(rises) <= 1


def test_a_restart_and_unknown_ends_change_nothing() -> None:
    for name in ("restart", "unknown ends"):
        assert changes(slots(BY_NAME[name])) == []
    unknown = [slot for slot in slots(BY_NAME["unknown ends"]) if 7210 <= slot.at < 9000]
    assert {slot.advice.answer for slot in unknown if slot.advice is not None} == {Answer.UNKNOWN}


def test_a_day_follows_the_curve() -> None:
    found = slots(BY_NAME["daily curve"])
    at_noon, at_night = found[round(12 * 3600 / SLOT_SECONDS)], found[-1]

    assert at_noon.workers >= 9
    assert at_night.workers <= 3


RECORDED = Path(__file__).parents[1] / "recorded" / "advice.json"
"""What a master saw each second of a real group with twice the load that one worker can handle
(tests/integration/test_advice.py)."""


@pytest.mark.shows("a recorded run of a real group is answered again as it was")
def test_a_recorded_run_is_answered_as_it_was() -> None:
    rules = AdviceSection(
        window_seconds=60, up_after_seconds=3, max_up=4, gap_seconds=4, pause_seconds=10, catch_up_seconds=30
    )
    adviser, answers, recorded = Adviser(rules, "cooperative-sticky"), [], []
    for row in json.loads(RECORDED.read_text()):
        found = adviser.seen(
            Sample(
                at=row["at"],
                keys=tuple(("advised-2", number) for number in range(len(row["end"]))),
                end=np.array(row["end"], np.float64),
                lag=np.array(row["lag"], np.float64),
                owners=tuple(None if each is None else f"worker-{each}" for each in row["owners"]),
                workers=row["workers"],
                work={name: Work(*counts) for name, counts in row["work"].items()},
                full_batch=150,
                cycle_seconds=row["cycle_seconds"],
                blocked=row["blocked"],
            )
        )
        answers.append((found.answer.value, found.workers, found.current))
        recorded.append((row["answer"], row["advised"], row["workers"]))

    assert known(answers) == known(recorded) == [("keep", 1, 1), ("workers", 4, 1), ("keep", 4, 4)]
    assert found.outcome is not None
    assert found.outcome.is_met


def known(answers: Iterable[tuple[str, int | None, int]]) -> list[tuple[str, int | None, int]]:
    return [answer for answer, _ in groupby(answers) if answer[0] != "unknown"]
