from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from kctl.status import handling
from kctl.status.handling import Found
from kctl_agent.replies.block_size import RecentDeadLetters, StorageReply
from kctl_agent.replies.encode import aged
from kctl_agent.replies.workers import SinkerStats

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
