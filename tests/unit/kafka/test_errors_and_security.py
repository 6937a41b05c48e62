import inspect
import re
from pathlib import Path

import pytest
from kafka import errors

from kctl_agent.kafka.errors import describe, name_of, reason
from kctl_agent.kafka.security import Security, spark_options

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
        (errors.KafkaConnectionError(BrokenPipeError(32, "Broken pipe")), "broken pipe"),
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


def test_a_password_of_any_letters_is_quoted_for_jaas() -> None:
    security = Security("SASL_PLAINTEXT", mechanism="PLAIN", username="u", password='a"b\\c; d')

    options = spark_options(security)

    assert options["kafka.sasl.jaas.config"] == (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="a\\"b\\\\c; d";'
    )
    assert options.keys() == {"kafka.security.protocol", "kafka.sasl.mechanism", "kafka.sasl.jaas.config"}


def test_a_certificate_of_our_own_goes_to_java_as_text_with_its_key(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text("certificate and key")
    security = Security(
        "SSL", ca_file="/ca.pem", certificate_file=str(both), key_password="hidden", check_hostname=False
    )

    options = spark_options(security)

    assert options["kafka.ssl.keystore.certificate.chain"] == options["kafka.ssl.keystore.key"] == "certificate and key"
    assert (options["kafka.ssl.truststore.location"], options["kafka.ssl.truststore.type"]) == ("/ca.pem", "PEM")
    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert "hidden" not in repr(security)


def test_a_token_is_read_from_its_file_by_both_clients_at_each_authentication(tmp_path: Path) -> None:
    file = tmp_path / "token"
    security = Security("SASL_SSL", mechanism="OAUTHBEARER", token_file=str(file))
    provider = security.client_settings()["sasl_oauth_token_provider"]

    file.touch(0o600)
    file.write_text("first\n")
    assert provider.token() == "first"
    file.write_text("second\n")
    assert provider.token() == "second"
    assert spark_options(security)["kafka.sasl.oauthbearer.token.endpoint.url"] == file.as_uri()
