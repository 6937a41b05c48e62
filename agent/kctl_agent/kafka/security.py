"""TLS and SASL as kafka-python's clients call these settings; for worker and control plane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def is_encrypted(protocol: str) -> bool:
    return protocol in ("SSL", "SASL_SSL")


def is_authenticated(protocol: str) -> bool:
    return protocol.startswith("SASL_")


def client_settings(
    protocol: str,
    *,
    ca_file: Path | str | None,
    certificate_file: Path | str | None,
    key_file: Path | str | None,
    key_password: str | None,
    check_hostname: bool,
    mechanism: str | None,
    username: str | None,
    password: str | None,
    read_token: Callable[[], str] | None,
) -> dict[str, Any]:
    """Returns the settings for kafka-python's clients. `read_token` is called at each authentication by OAUTHBEARER."""
    settings: dict[str, Any] = {"security_protocol": protocol}
    if is_encrypted(protocol):
        settings |= {
            "ssl_check_hostname": check_hostname,
            "ssl_cafile": _text(ca_file),
            "ssl_certfile": _text(certificate_file),
            "ssl_keyfile": _text(key_file),
            "ssl_password": key_password,
        }
    if is_authenticated(protocol):
        settings |= {"sasl_mechanism": mechanism, "sasl_plain_username": username, "sasl_plain_password": password}
        if mechanism == "OAUTHBEARER" and read_token is not None:
            settings["sasl_oauth_token_provider"] = _token_provider(read_token)
    return settings


def _token_provider(read_token: Callable[[], str]) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
        def token(self) -> str:
            return read_token()

    return TokenProvider()


def _text(path: Path | str | None) -> str | None:
    return None if path is None else str(path)
