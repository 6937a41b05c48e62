"""Reads secrets from files that settings name, or from the environment. Uses only the standard library."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.errors import ConfigError
from kctl_agent.secrecy import read_private

if TYPE_CHECKING:
    from kctl.config.sections import Config

PASSWORD_VARIABLE = "KCTL_SASL_PASSWORD"  # noqa: S105 - the name of a variable, not a password
CLUSTER_VARIABLE = "KCTL_CLUSTER_SECRET"
SECRET_VARIABLES = frozenset({PASSWORD_VARIABLE, CLUSTER_VARIABLE})


def secret_of(path: Path | None, what: str) -> str | None:
    """Reads a secret without its line end. Returns None if there is no `path`. Raises ConfigError."""
    if path is None:
        return None
    try:
        return read_private(path).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{what} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def cluster_secret(config: Config, env: Mapping[str, str] = os.environ) -> str | None:
    """Returns the secret that a Spark cluster and its applications share. Raises ConfigError if the secret cannot be
    read, or if a standalone cluster has neither a secret nor the setting `spark.authenticate`."""
    name = config.spark.auth_secret_file
    path = config.path.parent / name if name else None
    secret = secret_of(path, f"{config.path}: spark.auth_secret_file") or env.get(CLUSTER_VARIABLE) or None
    if secret is None and config.spark.master.startswith("spark://") and "spark.authenticate" not in config.spark.conf:
        raise ConfigError(
            f'{config.path}: spark.master is "{config.spark.master}", but without a secret any client of its ports can '
            f"run code there: set spark.auth_secret_file or {CLUSTER_VARIABLE}, or `spark.authenticate` in [spark.conf]"
        )
    return secret
