"""TLS and SASL settings for kafka-python's clients, for workers and control plane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kctl_agent.secrecy import read_private


def token_in(path: Path) -> str:
    return read_private(path).strip()


class Security(NamedTuple):
    """Paths are absolute, because a worker's executors read the files too. `repr` shows no secrets."""

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
        """Settings for kafka-python's clients. OAUTHBEARER calls `read_token` at each authentication."""
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
