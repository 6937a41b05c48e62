"""How often the rules are wrong, over random histories of which the truth is known; `benchmarks.status_rules` has more
of them, and Burrow's rules beside ours."""

from __future__ import annotations

from functools import cache

import pytest

from benchmarks._burrow import BurrowCommit, BurrowStatus, evaluated
from benchmarks._histories import KINDS, History, Truth, histories
from benchmarks._judgements import RULES, Score, burrow_statuses, scores, statuses


@cache
def some() -> list[History]:
    """A poll costs the same for one history as for twenty, so those with a poll each second or two are left to the
    benchmark."""
    return [history for history in histories(40) if history.poll_seconds > 2]


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


def test_burrow_s_rules_are_wrong_more_often() -> None:
    any_alarm, burrow = ours()["any"], scores(some(), burrow_statuses)["any"]

    assert any_alarm.false_share < burrow.false_share
    assert any_alarm.missed_share < burrow.missed_share


def commits(offsets: list[int], lags: list[int | None]) -> list[BurrowCommit]:
    """One each 100 s, from 100 s on."""
    return [BurrowCommit(100.0 * n, *each) for n, each in enumerate(zip(offsets, lags, strict=True), 1)]


ADVANCING, STANDING = [1000, 2000, 3000, 4000, 5000], [1000] * 5


@pytest.mark.parametrize(
    ("offsets", "lags", "ends", "lag", "now", "allowed", "status"),
    [
        (ADVANCING, [0, 50, 100, 150, 200], [5200], 200, 600, 0, "OK"),
        (ADVANCING, [0, 50, 100, 150, 200], [5200], 200, 900, 0, "OK"),
        (ADVANCING, [0, 50, 100, 150, 200], [5200], 200, 1000, 0, "STOP"),
        (ADVANCING, [50, 100, 150, 200, 250], [5250], 250, 1000, 0, "STOP"),
        (ADVANCING, [50, 100, 150, 200, 250], [5250], 250, 600, 0, "WARN"),
        (STANDING, [0, 50, 100, 150, 200], [1200], 200, 600, 0, "OK"),
        (STANDING, [100, 150, 200, 250, 300], [1300], 300, 600, 0, "STALL"),
        (STANDING, [100] * 5, [1100], 100, 600, 0, "STALL"),
        ([1000, 2000, 3000, 2000, 4000], [100, 150, 200, 1250, 300], [4300], 300, 600, 0, "OK"),
        (ADVANCING, [50, 100, 150, 200, 250], [5250], 0, 1000, 0, "OK"),
        (ADVANCING, [0] * 5, [9000, 6000], 4000, 1000, 0, "STOP"),
        (ADVANCING, [0] * 5, [5001, 5000], 1, 1000, 0, "OK"),
        (ADVANCING, [0, None, 100, None, 200], [5200], 200, 600, 0, "OK"),
        ([1000, 2000, 2000], [2, 1, 1], [2001], 1, 550, 1, "OK"),
        (STANDING, [100, 150, 200, 250, 300], [1300], 300, 600, 99, "STALL"),
        ([1000, 2000, 3000, 2000, 2500], [100, 150, 200, 1250, 300], [4300], 300, 600, 0, "REWIND"),
    ],
)
def test_burrow_s_rules_are_those_of_burrow(
    offsets: list[int], lags: list[int | None], ends: list[int], lag: int, now: float, allowed: int, status: str
) -> None:
    assert evaluated(commits(offsets, lags), ends, lag, now, allowed) is BurrowStatus(status)
