"""TLS and SASL for connections to brokers, as settings of kafka-python's clients and of Spark's Java client."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kctl_agent.secrecy import read_private


def token_in(path: Path) -> str:
    return read_private(path).strip()


class Security(NamedTuple):
    """How clients connect to brokers. Paths are absolute. `repr` hides secrets."""

    protocol: str = "PLAINTEXT"
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    check_hostname: bool = True
    mechanism: str | None = None
    username: str | None = None
    password: str | None = None
    token_file: str | None = None

    @property
    def is_encrypted(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def is_authenticated(self) -> bool:
        return self.protocol.startswith("SASL_")

    def __repr__(self) -> str:
        return f"Security({self.protocol})"

    def client_settings(self, read_token: Callable[[Path], str] = token_in) -> dict[str, Any]:
        """Returns settings for kafka-python's clients. With OAUTHBEARER, `read_token` runs at each authentication."""
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self.is_encrypted:
            settings |= {
                "ssl_check_hostname": self.check_hostname,
                "ssl_cafile": self.ca_file,
                "ssl_certfile": self.certificate_file,
                "ssl_keyfile": self.key_file,
                "ssl_password": self.key_password,
            }
        if self.is_authenticated:
            settings |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
            if self.token_file is not None:
                settings["sasl_oauth_token_provider"] = _token_provider(Path(self.token_file), read_token)
        return settings


def _token_provider(file: Path, read_token: Callable[[Path], str]) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
        def token(self) -> str:
            return read_token(file)

    return TokenProvider()


_MODULES = "org.apache.kafka.common.security"


def spark_options(security: Security) -> dict[str, str]:
    """Returns options of Spark's Java client. They contain the key and certificate as text, because the client
    cannot read them from two files (KIP-651). The client never logs them."""
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
    # JAAS reads the text with Java's StreamTokenizer.
    return '"' + (text or "").replace("\\", "\\\\").replace('"', '\\"') + '"'
