from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kctl.master.rings import Ring, StepRates

NAN = math.nan
VALUES = st.one_of(st.just(NAN), st.integers(0, 1000).map(float))
MOMENTS = st.lists(st.tuples(st.integers(-40, 90), VALUES), max_size=40)


def ring_of(*metrics: float, slots: int = 6) -> Ring:
    ring = Ring(5.0, slots)
    ring.choose(np.array([-1]), len(metrics) or 1)
    return ring


@given(MOMENTS)
def test_each_step_keeps_its_least_and_its_most_wherever_the_clock_goes(moments: list[tuple[int, float]]) -> None:
    ring, model, at, last = ring_of(), dict[int, list[float]](), 1000, 200

    for moved, value in moments:
        at += moved
        last = at // 5
        model = {step: values for step, values in model.items() if last - 6 < step <= last}
        model.setdefault(last, [])
        model[last] += [] if value != value else [value]
        ring.add(at, np.array([[value]]))

    first, least, most = ring.window(0, 0.0, 1e9)
    known = {first + n: (low, high) for n, (low, high) in enumerate(zip(least[0], most[0], strict=True)) if low == low}
    assert known == {step: (min(values), max(values)) for step, values in model.items() if values}


def test_rates_are_between_steps_and_what_has_fallen_has_none() -> None:
    rates = StepRates(5.0)
    counters = [([10.0, 100.0], 0.0), ([20.0, 100.0], 2.0), ([60.0, 90.0], 5.0), ([60.0, 100.0], 10.0)]

    found = [rates.add(["a", "b"], np.array([values]), now, 1000.0 + now)[0].tolist() for values, now in counters]

    assert np.isnan(found[0] + found[1]).all(), "there is nothing to compare with, and the same step"
    assert (found[2][0], found[3]) == (10.0, [0.0, 2.0])
    assert math.isnan(found[2][1])


def test_a_counter_that_is_new_or_unknown_has_no_rate() -> None:
    rates = StepRates(5.0)
    rates.add(["a"], np.array([[NAN]]), 0.0, 0.0)

    found = rates.add(["new", "a"], np.array([[5.0, 5.0]]), 5.0, 5.0)

    assert np.isnan(found).all()
    assert rates.add(["a", "new"], np.array([[15.0, 5.0]]), 10.0, 10.0).tolist() == [[2.0, 0.0]]
