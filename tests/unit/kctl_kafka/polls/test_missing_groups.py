from __future__ import annotations

from contextlib import closing

import pytest

from kctl.errors import GroupMissing, NotAuthorised
from kctl.kafka.client.access import plain
from kctl.kafka.groups import Group, ListedGroup
from kctl.kafka.polls.cluster_reader import ClusterReader
from kctl.kafka.polls.group_sources import MissingGroups
from tests.clock import Clock
from tests.servers.scripted_broker import Answers, ScriptedBroker, Step
from tests.unit.kctl_kafka.scripts import LOADING, NOT_COORDINATOR, described, group

DENIED = [Group("billing", 1, error=GroupMissing("there is no group billing"))]


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def missing(clock: Clock) -> MissingGroups:
    return MissingGroups(clock=clock)


def listed_by(node: int) -> dict[str, ListedGroup]:
    return {"billing": ListedGroup("billing", "Empty", "classic", "consumer", node)}


def test_a_denied_group_is_gone_or_starts_over_if_it_is_listed_again(missing: MissingGroups, clock: Clock) -> None:
    missing.unclear(listed_by(1), [])

    assert missing.of({}) == ["billing"]
    assert missing.unclear({}, DENIED) == {}
    assert missing.of({}) == []

    missing.unclear(listed_by(999), [])
    missing.unclear({}, DENIED)
    missing.unclear(listed_by(999), [])
    clock.now += 31.0

    assert missing.unclear({}, DENIED) == {"billing": None}


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


def test_one_that_cannot_be_described_stays_with_its_error(missing: MissingGroups) -> None:
    missing.unclear(listed_by(1), [])
    error = NotAuthorised("GROUP_AUTHORIZATION_FAILED")

    assert missing.unclear({}, [Group("billing", 1, error=error)]) == {"billing": error}
    assert missing.of({}) == ["billing"]


LISTED = {"group_id": "billing", "protocol_type": "consumer", "group_state": "Empty", "group_type": "classic"}
OTHER = {**LISTED, "group_id": "other"}


@pytest.mark.parametrize("code", [LOADING, NOT_COORDINATOR])
def test_a_group_on_no_list_is_gone_only_when_its_coordinator_reports_that(code: int) -> None:
    """A moving coordinator lists no groups and reports no error, and a new one denies them for a moment."""
    both, one = Answers({"groups": [LISTED, OTHER]}), Answers({"groups": [OTHER]})
    script: dict[str, list[Step]] = {
        # the reader lists once, and again before a described group counts as missing.
        "ListGroups": [both, one, one, one, both, one, one],
        "DescribeGroups": [described(group("billing", code=code)), described(), described()],
        "OffsetFetch": [Answers({"groups": [{"group_id": name, "topics": []} for name in ("billing", "other")]})],
    }
    with (
        ScriptedBroker(script, topics={"orders": 1}) as broker,
        closing(ClusterReader(plain(broker.address), 10)) as reader,
    ):
        first = reader.read()
        moving = reader.read()
        denied = reader.read()
        back = reader.read()
        gone = reader.read()

    assert first.groups.keys() == {"billing", "other"}
    assert (set(moving.groups), moving.unclear) == ({"other"}, {"billing"})
    assert moving.errors.keys() == {"groups", "committed", "members"}
    assert (set(denied.groups), denied.unclear) == ({"other"}, {"billing"})
    assert not denied.errors
    assert back.groups.keys() == {"billing", "other"}
    assert (set(gone.groups), gone.unclear, gone.errors) == ({"other"}, set(), {})
    assert broker.asked.count("DescribeGroups") == 3
