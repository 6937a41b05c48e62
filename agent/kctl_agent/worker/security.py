"""TLS and SASL towards the brokers, as kafka-python's clients and as Spark's Java client want to be configured.

Both read certificates as PEM. Keys and certificate of our own go to the Java client as text, which it takes only so
(KIP-651); what it calls a password it never logs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kctl_agent.secrecy import read_private

__all__ = ["Security"]

_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Security:
    """Not plain. Paths are absolute, and are read by executors as well; secrets are never shown."""

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
        """For kafka-python's consumer and admin client."""
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self._is_encrypted:
            settings |= {
                "ssl_check_hostname": self.check_hostname,
                "ssl_cafile": self.ca_file,
                "ssl_certfile": self.certificate_file,
                "ssl_keyfile": self.key_file,
                "ssl_password": self.key_password,
            }
        if self._is_authenticated:
            settings |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
            if self.mechanism == "OAUTHBEARER":
                settings["sasl_oauth_token_provider"] = _file_token(Path(self.token_file or ""))
        return settings

    def spark_options(self) -> dict[str, str]:
        """For Spark's source `kafka`. Raises OSError when certificate or key cannot be read."""
        options: dict[str, str | None] = {"security.protocol": self.protocol}
        if self._is_encrypted:
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
        if self._is_authenticated:
            options |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._jaas()}
            if self.mechanism == "OAUTHBEARER":
                options |= {
                    "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
                    "sasl.oauthbearer.token.endpoint.url": Path(self.token_file or "").as_uri(),
                }
        return {f"kafka.{name}": value for name, value in options.items() if value is not None}

    @property
    def _is_encrypted(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def _is_authenticated(self) -> bool:
        return self.protocol.startswith("SASL_")

    def _jaas(self) -> str:
        if self.mechanism == "OAUTHBEARER":
            return f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
        module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
        return f"{_MODULES}.{module} required username={_quoted(self.username)} password={_quoted(self.password)};"


def _quoted(text: str | None) -> str:
    """As JAAS reads it: StreamTokenizer's rules, where a backslash escapes."""
    return '"' + (text or "").replace("\\", "\\\\").replace('"', '\\"') + '"'


def _file_token(path: Path) -> Any:
    """Reads the token anew at each authentication."""
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class FileToken(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
        def token(self) -> str:
            return read_private(path).strip()

    return FileToken()
