"""The provider that kafka-python asks for a token of OAUTHBEARER."""

from __future__ import annotations

from collections.abc import Callable

from kafka.net.sasl.oauth import AbstractTokenProvider

__all__ = ["TokenProvider"]


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
    """Reads the token anew at each authentication."""

    def __init__(self, read_token: Callable[[], str]) -> None:
        super().__init__()
        self._read_token = read_token

    def token(self) -> str:
        return self._read_token()
