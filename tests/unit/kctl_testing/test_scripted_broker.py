"""The scripted broker follows its script, so that what is tested with it is the other side."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest

from kctl.errors import BrokerRefused, BrokerUnreachable, KctlError
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import require, topics_of
from tests.servers.broker_frames import RequestFrames, metadata_fields, response_frame
from tests.servers.scripted_broker import (
    Answers,
    BreaksFrame,
    HangsUp,
    Script,
    ScriptedBroker,
    SendsBytes,
    Stalls,
    Step,
    Vanishes,
)

GROUPS = Answers({"groups": [{"group_id": "billing", "protocol_type": "consumer", "group_state": "Empty"}]})
SECONDS = 5.0


def listed(broker: ScriptedBroker, seconds: float = SECONDS) -> Any:
    with ClusterConnection(plain(broker.address), seconds) as connection:
        connection.open()
        return connection.ask(ListGroupsRequest(states_filter=[], types_filter=[]))


@pytest.mark.shows("`ScriptedBroker` answers, stalls, breaks a frame, hangs up; any client of Kafka is served")
def test_it_answers_as_scripted_and_keeps_what_it_was_asked() -> None:
    with ScriptedBroker({"ListGroups": GROUPS}) as broker:
        answer = listed(broker)

    assert [(each.group_id, each.group_state) for each in answer.groups] == [("billing", "Empty")]
    assert broker.asked == ["ApiVersions", "Metadata", "ListGroups"]
    assert broker.requests[-1].states_filter == []


def test_an_answer_may_be_made_from_the_request() -> None:
    def described(request: Any) -> dict[str, Any]:
        return {"groups": [{"group_id": name.upper()} for name in request.groups]}

    with (
        ScriptedBroker({"DescribeGroups": Answers(described)}) as broker,
        ClusterConnection(plain(broker.address), 5) as ours,
    ):
        ours.open()
        answer = ours.ask(DescribeGroupsRequest(groups=["a", "b"], include_authorized_operations=False))

    assert [each.group_id for each in answer.groups] == ["A", "B"]


def test_steps_are_taken_one_request_after_the_other_and_the_last_one_stays() -> None:
    steps: list[Step] = [Answers({"error_code": 14}), GROUPS]
    with ScriptedBroker({"ListGroups": steps}) as broker:
        codes = [listed(broker).error_code for _ in range(3)]

    assert codes == [14, 0, 0]


def test_it_leads_the_partitions_of_its_topics_and_knows_no_others() -> None:
    with (
        ScriptedBroker(topics={"orders": 3}) as broker,
        ClusterConnection(plain(broker.address), SECONDS) as connection,
    ):
        topics = topics_of(connection.open(["orders", "gone"]))

    assert [each.leader for each in topics["orders"].partitions] == [1, 1, 1]
    with pytest.raises(KctlError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        require(topics, "gone")


def test_it_coordinates_every_group() -> None:
    with ScriptedBroker(node_id=7) as broker, ClusterConnection(plain(broker.address), SECONDS) as connection:
        connection.open()
        connection.pause()

        assert connection.coordinators(["a", "b"]) == {"a": 7, "b": 7}


def test_several_brokers_are_named_by_a_script_for_metadata() -> None:
    with ScriptedBroker(node_id=2) as second:
        both = Answers(lambda _: metadata_fields({1: first.address, 2: second.address}, {"orders": [1, 2, -1]}))
        with (
            ScriptedBroker({"Metadata": both}) as first,
            ClusterConnection(plain(first.address), SECONDS) as connection,
        ):
            topics = topics_of(connection.open(["orders"]))
            opened = connection.connections([1, 2])

    assert sorted(connection.brokers) == [1, 2]
    assert [each.leader for each in topics["orders"].partitions] == [1, 2, None]
    assert not any(isinstance(each, KctlError) for each in opened.values())
    assert second.asked == ["ApiVersions"]


def test_a_request_that_is_not_in_the_script_is_not_known_to_the_broker() -> None:
    with ScriptedBroker() as broker, pytest.raises(BrokerRefused, match="does not support the 'ListGroupsRequest'"):
        listed(broker)


def test_it_may_know_only_old_versions_of_a_request() -> None:
    with ScriptedBroker({"ListGroups": GROUPS}, versions={"ListGroups": (0, 2)}) as broker:
        answer = listed(broker)

    assert broker.requests[-1].API_VERSION == 2
    assert [(each.group_id, each.group_state) for each in answer.groups] == [("billing", "")]


@pytest.mark.parametrize("step", [BreaksFrame({"groups": [{"group_id": "x" * 100}]}), HangsUp(), Vanishes()])
def test_a_connection_can_end_at_any_place(step: Step) -> None:
    with ScriptedBroker({"ListGroups": [step, GROUPS]}) as broker, pytest.raises(BrokerUnreachable):
        listed(broker)


def test_it_can_send_anything() -> None:
    with (
        ScriptedBroker({"ListGroups": SendsBytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")}) as broker,
        pytest.raises(KctlError),
    ):
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


def test_what_stalls_for_ever_is_given_up_by_the_client() -> None:
    with ScriptedBroker({"ListGroups": Stalls()}) as broker, pytest.raises(BrokerUnreachable):
        listed(broker, seconds=0.3)


def test_a_broker_that_has_vanished_refuses_connections() -> None:
    with ScriptedBroker() as broker:
        broker.vanish()

        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(broker.address.rpartition(":")[2])))


def test_a_request_is_found_however_its_bytes_come() -> None:
    request = ListGroupsRequest(states_filter=["Stable"], types_filter=[])
    request.API_VERSION = 5
    request.with_header(correlation_id=7, client_id="me")
    data = request.encode(header=True, framed=True)
    incoming = RequestFrames()

    found = [each for at in range(2 * len(data)) for each in incoming.feed((data + data)[at : at + 1])]

    assert [(each.states_filter, each.header.correlation_id) for each in found] == [(["Stable"], 7)] * 2


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x0a\x7f\0\0\0\0\0\0\1\0\0"])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="request"):
        RequestFrames().feed(data)


def test_a_field_that_no_response_has_is_refused() -> None:
    request = ListGroupsRequest(states_filter=[], types_filter=[], version=5)
    request.with_header(correlation_id=1)

    with pytest.raises(ValueError, match="colour"):
        response_frame(request, {"colour": "red"})


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
