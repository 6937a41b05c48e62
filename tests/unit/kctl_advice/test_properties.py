"""The promises of docs/advice.md over generated loads: each run follows the advice at once, on a virtual clock."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks._loads import CAPACITY, SLOT_SECONDS, Advised, Load, Slot, run
from kctl.config.sections import AdviceSection

RULES = AdviceSection()
USUAL_SECONDS = 4 * SLOT_SECONDS
TOLERATED = 1.1
"""The advice tolerates a shortfall of 10 %, so catching up may take 10 % longer."""
WITHIN_SECONDS = TOLERATED * (RULES.catch_up_seconds + RULES.pause_seconds)
HOUR = 3600.0

seeds = st.integers(0, 1000)
assignors = st.sampled_from(["range", "roundrobin", "sticky", "cooperative-sticky"])


@st.composite
def loads(draw: st.DrawFn) -> tuple[Load, list[float]]:
    """A load that some number of workers can meet, and when its rate changes: at the beginning of each of one to three
    pieces of 40 to 100 minutes. It starts with a fifth to twice the workers that it needs."""
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


def steady(found: tuple[Load, list[float]]) -> Load:
    rate = found[0].rate(0.0)
    return replace(found[0], rate=lambda _: rate, hours=5.0)


@pytest.mark.shows("over generated loads, no change in an hour of steady load")
@given(loads().map(steady), assignors, seeds)
@settings(max_examples=10, deadline=None)
def test_a_steady_load_changes_nothing(load: Load, assignor: str, seed: int) -> None:
    slots = list(run(load, Advised(assignor=assignor), seed, assignor))
    settled = replace(load, workers=slots[-1].workers, hours=1.0)

    assert [at for at in changes(slots) if at > slots[-1].at - HOUR] == []
    assert changes(list(run(settled, Advised(assignor=assignor), seed + 1, assignor))) == []


@pytest.mark.shows("over generated loads, changes are five minutes apart, and the last one brings back the usual lag")
@given(loads(), assignors, seeds)
@settings(max_examples=40, deadline=None)
def test_changes_are_rare_and_the_last_one_meets_the_lag(
    found: tuple[Load, list[float]], assignor: str, seed: int
) -> None:
    load, begins = found
    slots = list(run(load, Advised(assignor=assignor), seed, assignor))

    assert all(later - earlier >= RULES.gap_seconds for earlier, later in pairwise(changes(slots)))
    assert {at: worst for at, worst in after_last_steps(load, begins, slots).items() if worst > USUAL_SECONDS} == {}


def test_a_last_step_that_meets_the_lag_is_found() -> None:
    load, begins = Load(name="rise", rate=lambda at: 2000.0 if at < HOUR else 6000.0, hours=2.0), [0.0, HOUR, 2 * HOUR]

    assert after_last_steps(load, begins, list(run(load, Advised()))) != {}


def changes(slots: list[Slot]) -> list[float]:
    return [after.at for before, after in pairwise(slots) if after.workers != before.workers]


def after_last_steps(load: Load, begins: list[float], slots: list[Slot]) -> dict[float, float]:
    """Returns the lag of the worst partition, in seconds, when the time after the last rise of each piece is over, if
    some number of workers could have met it: one for each partition."""
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
