from __future__ import annotations

import pytest

from kctl.errors import GroupMissing, NotAuthorised
from kctl.kafka.groups import Group, ListedGroup
from kctl.kafka.polls.group_sources import MissingGroups
from tests.clock import Clock

DENIED = [Group("billing", 1, error=GroupMissing("there is no group billing"))]


def test_denied_by_the_broker_that_has_listed_it_a_group_is_gone() -> None:
    missing = MissingGroups(clock=Clock(100.0))
    missing.unclear(_listed_by(1), [])

    assert missing.of({}) == ["billing"]
    assert missing.unclear({}, DENIED) == {}
    assert missing.of({}) == []


@pytest.mark.parametrize("change", ["another broker", "a new connection"])
def test_denied_by_another_one_a_group_is_gone_after_half_a_minute(change: str) -> None:
    clock = Clock(100.0)
    missing = MissingGroups(clock=clock)
    missing.unclear(_listed_by(999 if change == "another broker" else 1), [])
    if change == "a new connection":
        missing.reconnect()

    assert missing.unclear({}, DENIED) == {"billing": None}
    clock.now += 29.9
    assert missing.unclear({}, DENIED) == {"billing": None}
    clock.now += 0.2
    assert missing.unclear({}, DENIED) == {}


@pytest.mark.shows("a master that starts during a failover does not report its group as dead")
def test_one_that_is_expected_and_was_never_seen_is_gone_after_half_a_minute() -> None:
    """The coordinator that a master finds at its start may have just taken over."""
    clock = Clock(100.0)
    missing = MissingGroups(clock=clock)
    missing.expect(["billing"])

    assert missing.unclear({}, DENIED) == {"billing": None}
    missing.reconnect()
    clock.now += 29.9
    assert missing.unclear({}, DENIED) == {"billing": None}
    clock.now += 0.2
    assert missing.unclear({}, DENIED) == {}
    assert missing.unclear({}, DENIED) == {}, "and stays so"


def test_a_group_that_is_listed_again_meanwhile_starts_over() -> None:
    clock = Clock(100.0)
    missing = MissingGroups(clock=clock)
    missing.unclear(_listed_by(999), [])
    missing.unclear({}, DENIED)
    missing.unclear(_listed_by(999), [])
    clock.now += 31.0

    assert missing.unclear({}, DENIED) == {"billing": None}


def test_one_that_cannot_be_described_stays_with_its_error() -> None:
    missing = MissingGroups(clock=Clock(100.0))
    missing.unclear(_listed_by(1), [])
    error = NotAuthorised("GROUP_AUTHORIZATION_FAILED")

    assert missing.unclear({}, [Group("billing", 1, error=error)]) == {"billing": error}
    assert missing.of({}) == ["billing"]


def test_what_some_brokers_have_listed_is_not_forgotten() -> None:
    missing = MissingGroups(clock=Clock(100.0))
    missing.remember(_listed_by(999))

    assert missing.unclear({}, DENIED) == {"billing": None}


def _listed_by(node: int) -> dict[str, ListedGroup]:
    return {"billing": ListedGroup("billing", "Empty", "classic", "consumer", node)}
