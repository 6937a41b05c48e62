"""TLS and SASL towards the brokers, as kafka-python's clients and as Spark's Java client want to be configured.

Keys and certificate of our own go to the Java client as text, which it takes only so (KIP-651) and never logs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from kctl_agent.kafka.security import client_settings, is_authenticated, is_encrypted
from kctl_agent.secrecy import read_private

_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Security:
    """TLS and SASL, unless plain. Paths are absolute, and are read by executors as well; secrets are never shown."""

    protocol: str
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token_file: str | None = None

    def client_settings(self) -> dict[str, Any]:
        """Returns the settings for kafka-python's consumer and admin client."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "token_file"}
        return client_settings(**given, read_token=lambda: read_private(Path(self.token_file or "")).strip())

    def spark_options(self) -> dict[str, str]:
        """Returns the options of Spark's source `kafka`. Raises OSError when certificate or key cannot be read."""
        options: dict[str, str | None] = {"security.protocol": self.protocol}
        if is_encrypted(self.protocol):
            options |= {
                "ssl.endpoint.identification.algorithm": "https" if self.check_hostname else "",
                "ssl.truststore.type": "PEM" if self.ca_file else None,
                "ssl.truststore.location": self.ca_file,
                "ssl.key.password": self.key_password,
            }
            if self.certificate_file:
                certificate = Path(self.certificate_file).read_text(encoding="utf-8")
                key = read_private(Path(self.key_file)) if self.key_file else certificate
                options |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.certificate.chain": certificate,
                    "ssl.keystore.key": key,
                }
        if is_authenticated(self.protocol):
            options |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._jaas()}
            if self.mechanism == "OAUTHBEARER":
                options |= {
                    "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
                    "sasl.oauthbearer.token.endpoint.url": Path(self.token_file or "").as_uri(),
                }
        return {f"kafka.{name}": value for name, value in options.items() if value is not None}

    def _jaas(self) -> str:
        if self.mechanism == "OAUTHBEARER":
            return f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        return f"{_MODULES}.{module} required username={_quoted(self.username)} password={_quoted(self.password)};"


def _quoted(text: str | None) -> str:
    """Returns a quoted text for JAAS: StreamTokenizer's rules, where a backslash escapes."""
    return '"' + (text or "").replace("\\", "\\\\").replace('"', '\\"') + '"'
