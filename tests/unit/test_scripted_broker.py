from __future__ import annotations

import pytest
from kafka.protocol.admin import ListGroupsRequest

from kctl.errors import BrokerUnreachable
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from tests.servers.scripted_broker import Answers, ScriptedBroker


def ask(broker: ScriptedBroker) -> None:
    with ClusterConnection(plain(broker.address), 5.0) as connection:
        connection.open()
        connection.ask(ListGroupsRequest(states_filter=[], types_filter=[]))


def test_a_mistake_in_a_script_fails_the_test_that_made_it() -> None:
    with (
        pytest.raises(ValueError, match="colour"),
        ScriptedBroker({"ListGroups": Answers({"colour": "red"})}) as broker,
        pytest.raises(BrokerUnreachable),
    ):
        ask(broker)
