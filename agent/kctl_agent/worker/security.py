"""TLS and SASL towards the brokers, as options of Spark's Java client. It takes our key and certificate only as text
(KIP-651), and never logs them."""

from __future__ import annotations

from pathlib import Path

from kctl_agent.kafka.security import Security
from kctl_agent.secrecy import read_private

_MODULES = "org.apache.kafka.common.security"


def spark_options(security: Security) -> dict[str, str]:
    options: dict[str, str | None] = {"security.protocol": security.protocol}
    if security.is_encrypted:
        options |= {
            "ssl.endpoint.identification.algorithm": "https" if security.check_hostname else "",
            "ssl.truststore.type": "PEM" if security.ca_file else None,
            "ssl.truststore.location": security.ca_file,
            "ssl.key.password": security.key_password,
        }
        if security.certificate_file:
            certificate = Path(security.certificate_file).read_text(encoding="utf-8")
            key = read_private(Path(security.key_file)) if security.key_file else certificate
            options |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": certificate,
                "ssl.keystore.key": key,
            }
    if security.is_authenticated:
        options |= {"sasl.mechanism": security.mechanism, "sasl.jaas.config": _jaas(security)}
        if security.mechanism == "OAUTHBEARER":
            options |= {
                "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": Path(security.token_file or "").as_uri(),
            }
    return {f"kafka.{name}": value for name, value in options.items() if value is not None}


def _jaas(security: Security) -> str:
    if security.mechanism == "OAUTHBEARER":
        return f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
    module = "plain.PlainLoginModule" if security.mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f"{_MODULES}.{module} required username={_quoted(security.username)} password={_quoted(security.password)};"


def _quoted(text: str | None) -> str:
    """Quotes a text for JAAS: StreamTokenizer's rules, where a backslash escapes."""
    return '"' + (text or "").replace("\\", "\\\\").replace('"', '\\"') + '"'
