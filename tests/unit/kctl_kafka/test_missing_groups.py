"""What becomes of a group that brokers deny: gone, or only until its new coordinator knows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kctl.kafka.access import plain
from kctl.kafka.connection import Connection
from kctl.kafka.groups import ListedGroup
from kctl.kafka.missing_groups import MissingGroups
from kctl.testing.scripted_broker import Answers, ScriptedBroker
from tests.unit.kctl_kafka.scripts import described


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def connection() -> Iterator[Connection]:
    """To a broker that denies every group."""
    script = {"ListGroups": [Answers({"groups": []})], "DescribeGroups": [described()]}
    with ScriptedBroker(script) as broker, Connection(plain(broker.address), 10, has_retries=False) as opened:
        opened.open()
        yield opened


def test_denied_by_the_broker_that_has_listed_it_a_group_is_gone(connection: Connection) -> None:
    missing = MissingGroups(clock=Clock())
    missing.find(connection, _listed_by(connection))

    assert missing.find(connection, {}) == {}


@pytest.mark.parametrize("change", ["another broker", "a new connection"])
def test_denied_by_another_one_a_group_is_gone_after_half_a_minute(connection: Connection, change: str) -> None:
    clock = Clock()
    missing = MissingGroups(clock=clock)
    missing.find(connection, _listed_by(connection, node=999 if change == "another broker" else None))
    if change == "a new connection":
        missing.reconnect()

    assert missing.find(connection, {}) == {"billing": None}
    clock.now += 29.9
    assert missing.find(connection, {}) == {"billing": None}
    clock.now += 0.2
    assert missing.find(connection, {}) == {}


def test_one_that_is_listed_again_meanwhile_begins_anew(connection: Connection) -> None:
    clock = Clock()
    missing = MissingGroups(clock=clock)
    missing.find(connection, _listed_by(connection, node=999))
    missing.find(connection, {})
    missing.find(connection, _listed_by(connection, node=999))
    clock.now += 31.0

    assert missing.find(connection, {}) == {"billing": None}


def test_what_some_brokers_have_listed_is_not_forgotten(connection: Connection) -> None:
    missing = MissingGroups(clock=Clock())
    missing.remember(_listed_by(connection, node=999))

    assert missing.find(connection, {}) == {"billing": None}


def _listed_by(connection: Connection, node: int | None = None) -> dict[str, ListedGroup]:
    coordinator = next(iter(connection.brokers)) if node is None else node
    return {"billing": ListedGroup("billing", "Empty", "classic", "consumer", coordinator)}
