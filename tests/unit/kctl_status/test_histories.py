"""How often the rules are wrong over random histories with known truth; `benchmarks.status_rules` runs more histories
and compares Burrow's rules."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks._histories import KINDS, History, Truth, histories
from benchmarks._judgements import RULES, Score, scores, statuses


@cache
def some() -> list[History]:
    """A poll of one history costs as much as one of twenty, so the benchmark alone runs those with a poll every 5 s or
    more often."""
    return [history for history in histories(40) if history.poll_seconds > 5]


@cache
def ours() -> dict[str, Score]:
    return scores(some(), statuses)


def test_the_histories_are_of_every_kind_and_always_the_same() -> None:
    assert {history.kind for history in some()} == set(KINDS)
    assert {second.truth for history in some() for second in history.seconds} == set(Truth)
    assert next(histories(1, first=some()[7].number)) == some()[7]


@pytest.mark.shows("false and missed alarms of each rule are below 1 % over random histories")
@pytest.mark.timeout(120)
def test_alarms_are_false_or_missing_in_less_than_one_poll_of_a_hundred() -> None:
    found = ours()

    assert found.keys() == {*RULES, "any"}
    for rule, score in found.items():
        assert min(score.well, score.ill) > 1000, rule
        assert max(score.false_share, score.missed_share) < 0.01, (rule, score.by_history.most_common(3))


ADVANCING, STANDING = [1000, 2000, 3000, 4000, 5000], [1000] * 5
