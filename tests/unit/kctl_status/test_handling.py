import itertools
from collections.abc import Callable, Iterable, Mapping
from math import inf
from random import Random
from typing import Any

import pytest

from kctl.status import handling
from kctl.status.handling import Found
from kctl.status.unhandled import Unhandled, UnhandledTrend, limit_seconds, older, stored_seconds
from kctl_agent.replies.block_size import RecentDeadLetters, StorageReply, TableReply
from kctl_agent.replies.encode import aged
from kctl_agent.replies.workers import SinkerStats

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


def test_an_age_that_falls_by_less_than_a_tenth_of_a_second_per_second_is_not_catching_up() -> None:
    found = judged(lambda now: 1000.0 - 0.05 * now, 3600)

    assert (times(found, "is_late"), times(found, "is_catching_up")) == (list(range(3600)), [])


def sawtooth(start: float, rate: float, cycle: float, seed: int) -> Callable[[int], float]:
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


WAITING = StorageReply(pending=3, processing=1)


def sinkers(*stats: Mapping[str, Any]) -> dict[str, SinkerStats]:
    return {f"sinker-{number}": SinkerStats(handler="shop:handle", **each) for number, each in enumerate(stats)}


def only(found: Iterable[Found]) -> Found:
    [finding] = found
    return finding


@pytest.mark.shows("a hanging call of the handler is reported after 10 s or five times the usual duration")
def test_a_call_that_runs_for_long_is_found_with_its_handler_and_its_sinker() -> None:
    found = only(handling.calls(sinkers({"call_seconds": 75.2, "handler_p99_seconds": 0.2}, {"call_seconds": 3.0})))

    assert found.about == "handler calls"
    assert found.what == "the handler shop:handle has not returned in 1 of 2 sinkers"
    assert (
        found.why
        == "sinker-0's call has been running for 75 s; the limit is 10 s; `kctl stack sinker-0` shows where it is"
    )
    assert found.seconds == 75.2

    assert not [*handling.calls(sinkers({"call_seconds": 149.0, "handler_p99_seconds": 30.0}))]
    assert [*handling.calls(sinkers({"call_seconds": 151.0, "handler_p99_seconds": 30.0}))]
    assert not [*handling.calls(sinkers({}, {}))], "between calls"


@pytest.mark.parametrize(
    ("tries", "failures", "is_found"),
    [(19, 19, False), (20, 1, False), (20, 2, True), (1000, 50, False), (1000, 51, True), (1000, 200, True)],
)
def test_more_than_a_twentieth_of_twenty_tries_is_too_often(tries: int, failures: int, is_found: bool) -> None:
    many = {"recent_tries": tries - 5, "recent_failures": failures, "error_class": "ValueError"}
    parts = sinkers(many, {"recent_tries": 5, "recent_failures": 0})

    found = [*handling.tries(parts, StorageReply(pending=0, processing=0))]

    assert bool(found) is is_found
    if found:
        assert found[0].what == "the handler shop:handle has failed too often"
        why = f"{failures} of {tries} tries failed in the last minute, ValueError; `kctl logs sinker-0` shows more"
        assert found[0].why == why


def test_few_tries_that_all_fail_are_found_while_messages_wait() -> None:
    failing = {"failing_seconds": 40.0, "recent_tries": 6, "recent_failures": 6, "error_class": "KeyError"}

    found = only(handling.tries(sinkers(failing), WAITING))

    assert found.what == "no message was handled"
    assert found.why == "6 of 6 tries failed in the last minute, KeyError; `kctl logs sinker-0` shows more"
    assert found.seconds == 40.0
    assert only(handling.tries(sinkers(failing, {}), WAITING)).what == "1 of 2 sinkers has handled no message"
    assert not [*handling.tries(sinkers(failing), StorageReply(pending=0, processing=0, dead=7))], (
        "every message is settled"
    )
    assert not [*handling.tries(sinkers({"failing_seconds": 20.0}), WAITING)], "what it needs may be away for a moment"


@pytest.mark.shows("dead letters of the last five minutes make a fleet `degraded`, with their number and error class")
def test_dead_letters_are_found_for_five_minutes() -> None:
    dead = StorageReply(dead=900, recent_dead=RecentDeadLetters(200, "ValueError", 100.0, 94.0))

    found = only(handling.dead_letters(dead))

    assert found.what == "messages have become dead letters"
    assert found.why == "200 in 5 minutes, ValueError: `kctl storage dead groups` lists them"
    assert found.seconds == 100.0
    assert only(handling.dead_letters(aged(dead, 206.0)))
    assert not [*handling.dead_letters(aged(dead, 207.0))]
    assert not [*handling.dead_letters(StorageReply(dead=900))], "old ones"
    many = StorageReply(dead=90_000, recent_dead=RecentDeadLetters(20_000, None, 9.0, 0.0))
    assert (only(handling.dead_letters(many)).why or "").startswith("at least 20000 in 5 minutes: ")
