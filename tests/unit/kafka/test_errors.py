from __future__ import annotations

import inspect
import re

import pytest
from kafka import errors

from kctl_agent.kafka.errors import describe, name_of, reason

ALL: list[type[errors.KafkaError]] = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, errors.KafkaError) and each is not errors.LogTruncationError
]


@pytest.mark.shows("errors of the Kafka client are shown without class name and errno")
@pytest.mark.parametrize("args", [(), ("KafkaTimeoutError: late",), ("unable to connect: [Errno 111] ECONNREFUSED",)])
def test_no_sentence_holds_a_class_name_or_an_errno(args: tuple[str, ...]) -> None:
    texts = {kind.__name__: describe(kind(*args), "cannot begin to read orders", "b:9092") for kind in ALL}

    assert len(texts) > 100
    for name, text in texts.items():
        assert text.startswith("cannot begin to read orders: ")
        assert not re.search(rf"{name}|Errno|ECONN|TimeoutError", text), text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.KafkaConnectionError("111 ECONNREFUSED"), "connection refused"),
        (
            errors.KafkaConnectionError(ConnectionResetError(104, "Connection reset by peer")),
            "connection reset by peer",
        ),
        (errors.KafkaConnectionError(), "the connection was closed"),
        (ConnectionRefusedError(111, "Connection refused"), "connection refused"),
        (errors.KafkaTimeoutError(errors.KafkaTimeoutError("Timeout after 5000 ms")), "no answer in time"),
        (errors.NodeNotReadyError(2), "no connection to broker 2"),
        (errors.NodeNotReadyError("coordinator"), "no connection to the group's coordinator"),
        (errors.NodeNotReadyError("bootstrap-0"), "no connection"),
        (errors.NotCoordinatorError(), "NOT_COORDINATOR"),
        (errors.NotLeaderForPartitionError("orders-1"), "NOT_LEADER_OR_FOLLOWER (orders-1)"),
        (errors.UnknownError(), "UNKNOWN_SERVER_ERROR"),
        (errors.StaleMetadata(), "stale metadata"),
    ],
)
def test_a_reason_is_in_plain_words_or_the_brokers_own(error: Exception, text: str) -> None:
    assert reason(error) == text


def test_what_a_broker_refuses_keeps_its_name_and_names_the_missing_right() -> None:
    text = describe(errors.GroupAuthorizationFailedError(), "offsets are not committed", "b:9092")

    assert text == (
        "offsets are not committed: the Kafka brokers at b:9092 answered GROUP_AUTHORIZATION_FAILED; grant this right "
        "to its user, see SECURITY.md"
    )
    assert name_of(OSError(111, "refused")) is None
