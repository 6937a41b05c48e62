from __future__ import annotations

import pytest

from kctl_agent.attached.brokers import NotTranslatable, elsewhere, settings_of

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="a \\"b\\" =;c";'


def test_a_query_without_tls_and_sasl_needs_its_servers_alone() -> None:
    assert settings_of(SERVERS) == {"bootstrap_servers": "127.0.0.1:9092", "security_protocol": "PLAINTEXT"}


def test_tls_and_a_login_become_settings_of_kafka_python_however_the_options_are_spelled() -> None:
    options = {
        **SERVERS,
        "kafka.SECURITY.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": SCRAM,
    }

    settings = settings_of(options)

    assert {key: value for key, value in settings.items() if value is not None} == {
        "bootstrap_servers": "127.0.0.1:9092",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "/etc/ca.pem",
        "ssl_check_hostname": False,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": 'a "b" =;c',
    }


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"security.protocol": "SSL", "ssl.truststore.location": "/etc/ca.jks"}, "kafka.ssl.truststore.type JKS"),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "PKCS12", "ssl.keystore.location": "/etc/me.p12"},
            "kafka.ssl.keystore.type PKCS12",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "-----BEGIN"}, "in the text of kafka.ssl.trust"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "kafka.sasl.mechanism GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "kafka.sasl.mechanism OAUTHBEARER"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "PLAIN with this kafka.sasl.jaas.config"),
    ],
)
def test_options_that_kafka_python_cannot_have_are_named(options: dict[str, str], reason: str) -> None:
    with pytest.raises(NotTranslatable, match=reason):
        settings_of(SERVERS | {f"kafka.{key}": value for key, value in options.items()})


def of(*servers: str) -> list[dict[str, str]]:
    return [{"kafka.bootstrap.servers": each} for each in servers]


@pytest.mark.parametrize(
    ("queries", "own", "others"),
    [
        ({"q1": of("a:1,b:1"), "q2": of("b:1, a:1")}, "a:1,b:1", set()),
        ({"q1": of("a:1"), "q2": of("a:1,b:1")}, "a:1", set()),
        ({"q1": of("a:1"), "q2": of("c:1")}, "a:1", {"q2"}),
        ({"q1": of("a:1"), "q2": of("a:1", "c:1")}, "a:1", {"q2"}),
        ({"q1": of("a:1"), "q2": of("c:1"), "rate": []}, ["c:1"], {"q1"}),
        ({"q1": of("a:1"), "q2": []}, "another-listener:1", set()),
        ({}, "a:1", set()),
    ],
)
def test_queries_elsewhere_are_found(queries: dict[str, list[dict[str, str]]], own: str, others: set[str]) -> None:
    assert elsewhere(queries, own) == others
