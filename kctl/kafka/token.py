"""OAUTHBEARER's token from a file, read at each authentication: a renewed token is written there."""

from __future__ import annotations

from pathlib import Path

from kafka.net.sasl.oauth import AbstractTokenProvider

from kctl.errors import ConfigError
from kctl_agent.secrecy import read_private

__all__ = ["FileToken"]


class FileToken(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
    """Raises ConfigError when the file cannot be read or is empty."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def token(self) -> str:
        try:
            token = read_private(self._path).strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"oauth_token_file {self._path} cannot be read: {why}") from None
        if not token:
            raise ConfigError(f"oauth_token_file {self._path} is empty")
        return token
