from __future__ import annotations

import pytest
from kafka import errors

from kctl.errors import AuthenticationFailed, BrokerRefused, BrokerUnreachable, MessageTooLarge, NotAuthorised
from kctl.kafka.client.reasons import code_failure, failure, name_of_code


@pytest.mark.parametrize(
    ("error", "kind", "name"),
    [
        (errors.TopicAuthorizationFailedError(), NotAuthorised, "TOPIC_AUTHORIZATION_FAILED"),
        (errors.ClusterAuthorizationFailedError(), NotAuthorised, "CLUSTER_AUTHORIZATION_FAILED"),
        (errors.SaslAuthenticationFailedError("bad"), AuthenticationFailed, "SASL_AUTHENTICATION_FAILED (bad)"),
        (errors.MessageSizeTooLargeError(), MessageTooLarge, "MESSAGE_TOO_LARGE"),
        (errors.KafkaConnectionError("gone"), BrokerUnreachable, "gone"),
        (errors.InvalidTimestampError(), BrokerRefused, "INVALID_TIMESTAMP"),
    ],
)
def test_an_error_keeps_the_brokers_name_and_gets_an_exit_code(error: Exception, kind: type, name: str) -> None:
    reported = failure(error, "topic orders")

    assert type(reported) is kind
    assert str(reported).startswith("topic orders: ")
    assert name in str(reported)


def test_an_error_that_this_client_does_not_know_keeps_its_number() -> None:
    assert name_of_code(4711) == "error 4711"
    assert "error 4711" in str(code_failure(4711, "group g"))
    assert name_of_code(0) is None
