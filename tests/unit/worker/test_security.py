from __future__ import annotations

from pathlib import Path

from kctl_agent.kafka.security import Security, spark_options


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
