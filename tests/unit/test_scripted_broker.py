"""The scripted broker follows its script, so that what is tested with it is the other side."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest

from kctl.errors import BrokerUnreachable
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from tests.servers.scripted_broker import Answers, BreaksFrame, HangsUp, Script, ScriptedBroker, Stalls, Step, Vanishes

GROUPS = Answers({"groups": [{"group_id": "billing", "protocol_type": "consumer", "group_state": "Empty"}]})
SECONDS = 5.0


def listed(broker: ScriptedBroker, seconds: float = SECONDS) -> Any:
    with ClusterConnection(plain(broker.address), seconds) as connection:
        connection.open()
        return connection.ask(ListGroupsRequest(states_filter=[], types_filter=[]))


def test_it_answers_as_scripted_and_keeps_what_it_was_asked() -> None:
    with ScriptedBroker({"ListGroups": GROUPS}) as broker:
        answer = listed(broker)

    assert [(each.group_id, each.group_state) for each in answer.groups] == [("billing", "Empty")]
    assert broker.asked == ["ApiVersions", "Metadata", "ListGroups"]
    assert broker.requests[-1].states_filter == []


@pytest.mark.parametrize("step", [BreaksFrame({"groups": [{"group_id": "x" * 100}]}), HangsUp(), Vanishes()])
def test_a_connection_can_end_at_any_place(step: Step) -> None:
    with ScriptedBroker({"ListGroups": [step, GROUPS]}) as broker, pytest.raises(BrokerUnreachable):
        listed(broker)


def test_what_stalls_is_answered_when_the_event_is_set_and_holds_up_what_comes_after_it() -> None:
    go = threading.Event()
    script: Script = {"ListGroups": Stalls(go, then=GROUPS), "DescribeGroups": Answers()}
    requests: Sequence[Any] = [
        ListGroupsRequest(states_filter=[], types_filter=[]),
        DescribeGroupsRequest(groups=[], include_authorized_operations=False),
    ]
    with ScriptedBroker(script) as broker, ClusterConnection(plain(broker.address), SECONDS) as connection:
        connection.open()
        threading.Timer(0.05, go.set).start()
        answers = connection.ask_each([(1, each) for each in requests])

    assert [answer.name for answer in answers] == ["ListGroupsResponse", "DescribeGroupsResponse"]


def test_a_client_of_another_kind_is_served_too() -> None:
    with (
        ScriptedBroker({"ListGroups": GROUPS}) as broker,
        KafkaAdminClient(bootstrap_servers=broker.address, request_timeout_ms=5000) as admin,
    ):
        groups = admin.list_groups()

    assert [group["group_id"] for group in groups] == ["billing"]


def test_a_mistake_in_a_script_fails_the_test_that_made_it() -> None:
    with (
        pytest.raises(ValueError, match="colour"),
        ScriptedBroker({"ListGroups": Answers({"colour": "red"})}) as broker,
        pytest.raises(BrokerUnreachable),
    ):
        listed(broker)
