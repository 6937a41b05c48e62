"""The token of OAUTHBEARER from a file, read at each authentication: a renewed token is written there."""

from __future__ import annotations

from pathlib import Path

from kctl.errors import ConfigError
from kctl_agent.secrecy import read_private

__all__ = ["read_token"]


def read_token(path: Path) -> str:
    """Reads the token of a file. Raises ConfigError when the file cannot be read or is empty."""
    try:
        token = read_private(path).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"oauth_token_file {path} cannot be read: {why}") from None
    if not token:
        raise ConfigError(f"oauth_token_file {path} is empty")
    return token
