"""A fleet that follows the advice at once, on a virtual clock: whole days, generated loads, and a recorded run."""

import json
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import accumulate, groupby, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks._loads import CAPACITY, LOADS, SLOT_SECONDS, Advised, Load, Slot, run
from kctl.advice.adviser import Adviser, Sample
from kctl.advice.window import Work
from kctl.config.sections import AdviceSection
from kctl.rows.advice import Answer

RULES = AdviceSection()
USUAL_SECONDS = 4 * SLOT_SECONDS
WITHIN_SECONDS = 1.1 * (RULES.catch_up_seconds + RULES.pause_seconds)  # the advice tolerates a shortfall of 10 %
HOUR = 3600.0
BY_NAME = {load.name: load for load in LOADS}
MET = pytest.mark.parametrize("load", [load for load in LOADS if load.can_be_met], ids=lambda load: load.name)


@cache
def slots(load: Load) -> list[Slot]:
    return list(run(load, Advised(), 1))


def changes(found: list[Slot]) -> list[float]:
    return [after.at for before, after in pairwise(found) if after.workers != before.workers]


@pytest.mark.shows("never two changes within five minutes, over whole days of eleven loads")
@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_five_minutes_pass_between_two_changes(load: Load) -> None:
    of_sinkers = [after.at for before, after in pairwise(slots(load)) if after.sinkers != before.sinkers]

    for each in (changes(slots(load)), of_sinkers):
        assert all(later - earlier >= RULES.gap_seconds for earlier, later in pairwise(each))


@pytest.mark.shows("no change in hours of steady load")
@pytest.mark.parametrize(("rate", "workers"), [(500.0, 1), (1390.0, 3), (2500.0, 4), (2737.0, 4), (3000.0, 5)])
def test_a_steady_load_changes_nothing(rate: float, workers: int) -> None:
    assert changes(slots(Load(name=f"steady {rate}", rate=lambda _: rate, workers=workers, hours=2.0))) == []


@pytest.mark.shows("the usual lag is back within the catch-up time after the last permitted step")
@MET
def test_the_backlog_is_gone_within_the_catch_up_time_of_the_last_step(load: Load) -> None:
    found = slots(load)
    within = round(WITHIN_SECONDS / SLOT_SECONDS)
    steps = [
        number
        for number, (before, after) in enumerate(pairwise(found), 1)
        if after.workers > before.workers and before.advice and before.advice.workers == before.advice.needed
    ]

    late = {found[number].at: found[number + within].worst for number in steps if number + within < len(found)}

    assert all(worst <= USUAL_SECONDS for worst in late.values()), late
    assert found[-1].worst <= USUAL_SECONDS
    assert found[-1].pending <= found[-1].rate * USUAL_SECONDS


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


seeds = st.integers(0, 1000)
assignors = st.sampled_from(["range", "roundrobin", "sticky", "cooperative-sticky"])


@st.composite
def loads(draw: st.DrawFn) -> tuple[Load, list[float]]:
    """A load that some number of workers can meet, and the seconds at which its rate changes."""
    weights = tuple(draw(st.lists(st.floats(1, 4), min_size=8, max_size=48)))
    most = draw(st.floats(0.05, 0.4)) * CAPACITY * sum(weights) / max(weights)
    pieces = draw(st.lists(st.tuples(st.integers(40, 100), st.floats(0.1, 1)), min_size=1, max_size=3))
    begins = [0.0, *accumulate(60.0 * minutes for minutes, _ in pieces)]
    load = Load(
        name="generated",
        rate=lambda at: most * pieces[min(bisect_right(begins, at), len(pieces)) - 1][1],
        hours=begins[-1] / HOUR,
        weights=weights,
        workers=max(round(draw(st.floats(0.2, 2)) * most * pieces[0][1] / RULES.utilisation / CAPACITY), 1),
    )
    return load, begins


@pytest.mark.shows("over generated loads, at most one change in an hour of steady load")
@given(loads(), assignors, seeds)
@settings(max_examples=4)
def test_a_generated_steady_load_causes_no_flapping(found: tuple[Load, list[float]], assignor: str, seed: int) -> None:
    rate = found[0].rate(0.0)
    load = replace(found[0], rate=lambda _: rate, hours=4.0)
    slots = list(run(load, Advised(assignor=assignor), seed, assignor))
    settled = replace(load, workers=slots[-1].workers, hours=1.0)

    assert len([at for at in changes(slots) if at > slots[-1].at - HOUR]) <= 1  # one load in 100 is near the tolerance
    assert len(changes(list(run(settled, Advised(assignor=assignor), seed + 1, assignor)))) <= 1


@pytest.mark.shows("over generated loads, changes are five minutes apart, and the last one brings back the usual lag")
@given(loads(), assignors, seeds)
@settings(max_examples=12, derandomize=True)
def test_changes_are_rare_and_the_last_meets_the_lag(found: tuple[Load, list[float]], assignor: str, seed: int) -> None:
    load, begins = found
    slots = list(run(load, Advised(assignor=assignor), seed, assignor))

    assert all(later - earlier >= RULES.gap_seconds for earlier, later in pairwise(changes(slots)))
    assert {at: worst for at, worst in after_last_steps(load, begins, slots).items() if worst > USUAL_SECONDS} == {}


def test_a_last_step_that_meets_the_lag_is_found() -> None:
    load, begins = Load(name="rise", rate=lambda at: 2000.0 if at < HOUR else 6000.0, hours=2.0), [0.0, HOUR, 2 * HOUR]

    assert after_last_steps(load, begins, list(run(load, Advised()))) != {}


def after_last_steps(load: Load, begins: list[float], slots: list[Slot]) -> dict[float, float]:
    """For the last rise of workers in each piece, returns the worst partition's lag in seconds when it should be caught
    up. Omits pieces that one worker for each partition could not have met."""
    most, found = max(load.weights) / sum(load.weights), {}
    for begin, end in pairwise(begins):
        piece = [slot for slot in slots if begin < slot.at <= end]
        steps = [(before, after) for before, after in pairwise(piece) if after.workers > before.workers]
        if not steps:
            continue
        before, step = steps[-1]
        need = (
            step.rate * most * (1 / RULES.utilisation + (before.worst + RULES.pause_seconds) / RULES.catch_up_seconds)
        )
        later = [slot.worst for slot in piece if slot.at >= step.at + WITHIN_SECONDS]
        if need <= CAPACITY and later:
            found[step.at] = later[0]
    return found


RECORDED = Path(__file__).parents[1] / "recorded" / "advice.json"  # from tests/integration/test_advice.py


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
