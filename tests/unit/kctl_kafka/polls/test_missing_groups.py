from __future__ import annotations

import pytest

from kctl.errors import GroupMissing, NotAuthorised
from kctl.kafka.groups import Group, ListedGroup
from kctl.kafka.polls.group_sources import MissingGroups
from tests.clock import Clock

DENIED = [Group("billing", 1, error=GroupMissing("there is no group billing"))]


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def missing(clock: Clock) -> MissingGroups:
    return MissingGroups(clock=clock)


def listed_by(node: int) -> dict[str, ListedGroup]:
    return {"billing": ListedGroup("billing", "Empty", "classic", "consumer", node)}


def test_denied_by_the_broker_that_has_listed_it_a_group_is_gone(missing: MissingGroups) -> None:
    missing.unclear(listed_by(1), [])

    assert missing.of({}) == ["billing"]
    assert missing.unclear({}, DENIED) == {}
    assert missing.of({}) == []


@pytest.mark.shows("a master that starts during a failover does not report its group as dead")
@pytest.mark.parametrize("change", ["another broker", "some brokers listed it", "a new connection", "expected only"])
def test_one_that_may_exist_is_gone_after_half_a_minute(missing: MissingGroups, clock: Clock, change: str) -> None:
    """The coordinator that a master finds at its start may have just taken over."""
    if change == "another broker":
        missing.unclear(listed_by(999), [])
    elif change == "some brokers listed it":
        missing.remember(listed_by(999))
    elif change == "a new connection":
        missing.unclear(listed_by(1), [])
        missing.reconnect()
    else:
        missing.expect(["billing"])

    assert missing.unclear({}, DENIED) == {"billing": None}
    missing.reconnect()
    clock.now += 29.9
    assert missing.unclear({}, DENIED) == {"billing": None}
    clock.now += 0.2
    assert [missing.unclear({}, DENIED) for _ in range(2)] == [{}, {}], "and stays so"


def test_a_group_that_is_listed_again_meanwhile_starts_over(missing: MissingGroups, clock: Clock) -> None:
    missing.unclear(listed_by(999), [])
    missing.unclear({}, DENIED)
    missing.unclear(listed_by(999), [])
    clock.now += 31.0

    assert missing.unclear({}, DENIED) == {"billing": None}


def test_one_that_cannot_be_described_stays_with_its_error(missing: MissingGroups) -> None:
    missing.unclear(listed_by(1), [])
    error = NotAuthorised("GROUP_AUTHORIZATION_FAILED")

    assert missing.unclear({}, [Group("billing", 1, error=error)]) == {"billing": error}
    assert missing.of({}) == ["billing"]
