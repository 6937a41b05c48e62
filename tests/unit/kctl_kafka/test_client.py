from __future__ import annotations

import subprocess
import sys

import pytest
from kafka import errors

from kctl.errors import AuthenticationFailed, BrokerRefused, BrokerUnreachable, MessageTooLarge, NotAuthorised
from kctl.kafka.client.connection import Deadline
from kctl.kafka.client.reasons import code_failure, failure, name_of_code
from tests.clock import Clock


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


def test_retries_end_at_half_of_the_time_and_waiting_at_a_fifth() -> None:
    clock = Clock(100.0)
    deadline = Deadline(10.0, has_retries=True, clock=clock)
    seen = []

    for now in (100.0, 104.9, 105.1, 107.8, 108.0, 120.0):
        clock.now = now
        seen.append((round(deadline.left_seconds, 1), deadline.may_retry, deadline.may_wait))

    assert seen == [
        (10.0, True, True),
        (5.1, True, True),
        (4.9, False, True),
        (2.2, False, True),
        (2.0, False, False),
        (0.0, False, False),
    ]
    assert deadline.advice == "give it longer with --timeout, or look at the broker"
    assert deadline.left_milliseconds == 1, "0 would be no limit for kafka-python"
    deadline.renew()
    assert (deadline.left_seconds, deadline.may_retry) == (10.0, True)


def printed(program: str) -> list[str]:
    program = f"from kctl.kafka.client import light_imports; light_imports.install(); import sys\n{program}"
    return subprocess.check_output([sys.executable, "-c", program], text=True).split()


def test_only_what_is_needed_is_imported() -> None:
    imported = printed("print(*sys.modules)")

    assert "kafka.net.manager" in imported
    needless = {"kafka.consumer", "kafka.producer", "kafka.admin", "kafka.protocol.admin.acl", "kafka.net.sasl.scram"}
    assert not needless & set(imported)
    assert not {"_ssl", "kafka.metrics", "lzma"} & set(imported)  # modules replaced by stubs
