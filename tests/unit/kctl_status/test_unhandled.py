from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from math import inf
from random import Random

import pytest

from kctl.status.unhandled import Unhandled, UnhandledTrend, limit_seconds, older, stored_seconds
from kctl_agent.replies.block_size import StorageReply, TableReply

LIMIT = 60.0


def judged(age_at: Callable[[int], float], seconds: int, cycle: float = 1.0, limit: float = LIMIT) -> list[Unhandled]:
    trend = UnhandledTrend(hold_seconds=5.0)
    return [trend.seen(age_at(now), limit, cycle, float(now)) for now in range(seconds)]


def times(found: Iterable[Unhandled], name: str) -> list[int]:
    return [now for now, each in enumerate(found) if getattr(each, name)]


@pytest.mark.shows("a fleet is `degraded` if its oldest message is too old, and *catching up* if that age falls")
def test_an_unhandled_message_is_late_from_the_limit_on_until_five_seconds_after_it_is_handled() -> None:
    found = judged(lambda now: float(now), 300)

    assert times(found, "is_late") == list(range(61, 300))
    assert times(found, "is_catching_up") == []

    found = judged(lambda now: now if now < 200 else 0.4, 230)

    assert times(found, "is_late") == list(range(61, 205))


def test_a_backlog_that_is_worked_off_is_catching_up() -> None:
    """No reads until 200 s; then each commit, every other second, lowers the age by more than it rose."""
    found = judged(lambda now: now if now < 200 else 200 - 3 * (now - 200) + (now % 2) * 2, 240)

    late, falling = times(found, "is_late"), times(found, "is_catching_up")
    assert late == list(range(61, late[-1] + 1))
    assert 200 < late[-1] <= 210
    assert falling == list(range(late[-1] + 1, 240)), "above the limit still"


def test_a_sawtooth_that_grows_or_stays_over_the_limit_is_late_and_one_under_it_is_not() -> None:
    """Each ten-second batch lowers the age by nine."""
    found = judged(lambda now: 30 + now - 9.0 * (now // 10), 600, cycle=10.0)

    assert times(found, "is_late")[-300:] == list(range(300, 600)), "from when no batch brings it below the limit"
    assert times(found, "is_catching_up") == []

    over = judged(lambda now: 55.0 + now % 20, 600, cycle=20.0)
    under = judged(lambda now: 35.0 + now % 20, 600, cycle=20.0)

    assert not times(over, "is_catching_up")
    assert times(over, "is_late")
    assert not times(under, "is_late")


def test_a_handler_that_hangs_while_the_fleet_catches_up_is_seen_within_two_cycles() -> None:
    found = judged(lambda now: 500.0 - 2 * now if now < 60 else 380.0 + now - 60, 100)

    assert found[59].is_catching_up
    assert min(now for now in times(found, "is_late") if now >= 60) <= 70


def sawtooth(start: float, rate: float, cycle: float, seed: int) -> Callable[[int], float]:
    """Batches of 0.7 to 1.3 cycles; the age after each is within 0.3 cycles of the rate."""
    chance, ends, left = Random(seed), 0.0, start
    since = 0.0

    def age_at(now: int) -> float:
        nonlocal ends, left, since
        while now >= ends:
            since, left = ends, start + rate * ends + chance.uniform(-0.3, 0.3) * cycle
            ends += cycle * chance.uniform(0.7, 1.3)
        return max(left + now - since, 0.0)

    return age_at


def transitions(found: list[Unhandled]) -> int:
    return sum(before.is_late is not after.is_late for before, after in itertools.pairwise(found))


@pytest.mark.shows("the verdict on the oldest unhandled message does not flap, however batches vary")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cycle", [1.0, 10.0, 60.0])
@pytest.mark.parametrize("rate", [0.0, 0.1, 1.0])
def test_an_age_that_does_not_fall_is_late_without_a_break(rate: float, cycle: float, seed: int) -> None:
    chance = Random(seed)
    ages: list[Callable[[int], float]] = [
        sawtooth(LIMIT + 2 * cycle, rate, cycle, seed),
        lambda now: 200 + rate * now + chance.uniform(-3, 3),
    ]

    for age_at in ages:
        found = judged(age_at, 7200, cycle)

        assert times(found, "is_late") == list(range(7200))
        assert not times(found, "is_catching_up")


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cycle", [1.0, 10.0, 60.0])
def test_an_age_about_the_limit_is_late_without_a_break(cycle: float, seed: int) -> None:
    limit = limit_seconds(0.0, cycle)
    found = judged(sawtooth(limit - cycle / 2, 0.0, cycle, seed), 7200, cycle, limit)

    assert transitions(found) <= 1


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cycle", [1.0, 10.0, 60.0])
@pytest.mark.parametrize("rate", [-0.2, -0.5])
def test_an_age_that_falls_is_caught_up_with_once_until_it_falls_no_more(rate: float, cycle: float, seed: int) -> None:
    """The age falls for two hours, stays, falls again, and then grows as if a handler hangs."""
    window, fall = max(cycle, 5.0), sawtooth(10_000.0, rate, cycle, seed)
    low = 10_000.0 + rate * 7200
    stay, again = sawtooth(low, 0.0, cycle, seed), sawtooth(low, rate, cycle, seed)
    ages = [*map(fall, range(7200)), *map(stay, range(7200)), *map(again, range(3600))]
    found = judged([*ages, *(ages[-1] + now for now in range(600))].__getitem__, 18_600, cycle)

    [caught_up, stays, falls, hangs] = [
        now for now in range(1, 18_600) if found[now].is_late is not found[now - 1].is_late
    ]
    assert caught_up <= (2.0 / -rate + 4) * window
    assert stays - 7200 <= 22 * window
    assert falls - 14_400 <= (20 + 2.0 / -rate + 4) * window
    assert hangs - 18_000 <= 4 * window


def test_an_age_that_is_not_known_changes_no_judgement() -> None:
    trend = UnhandledTrend(hold_seconds=5.0)
    late = [trend.seen(float(now), LIMIT, 1.0, now) for now in range(100)][-1]

    unknown = [trend.seen(None, LIMIT, 1.0, now) for now in range(100, 200)]
    again = [trend.seen(500.0, LIMIT, 1.0, now) for now in range(200, 210)]

    assert (late.seconds, late.is_late) == (99.0, True)
    assert set(unknown) == {Unhandled(None, LIMIT, is_late=True)}
    assert {(each.is_late, each.is_catching_up) for each in again} == {(True, False)}
    assert UnhandledTrend(5.0).seen(None, LIMIT, 1.0, 1.0) == Unhandled(None, LIMIT)


def test_the_limit_is_three_usual_cycles_and_an_age_is_known_of_all_or_not_at_all() -> None:
    assert limit_seconds(0.0, 1.0) == 60.0
    assert limit_seconds(0.0, 600.0) == 1800.0
    assert limit_seconds(15.0, 600.0) == 15.0
    assert older(3.0, 5.0) == 5.0
    assert older(3.0, None) is None
    assert stored_seconds(StorageReply()) is None
    assert stored_seconds(StorageReply(pending=3, processing=0, oldest_seconds=4.0, error="refused")) is None
    assert stored_seconds(StorageReply(pending=0, processing=0)) == 0.0
    assert stored_seconds(StorageReply(pending=0, processing=2, oldest_seconds=4.0)) == 4.0
    assert stored_seconds(StorageReply(table=TableReply())) == 0.0, "rows wait for nobody"
    assert Unhandled().limit_seconds < inf
