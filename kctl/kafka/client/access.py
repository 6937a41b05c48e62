"""Access to a cluster: servers, TLS and SASL, from `kctl.toml` or the command line. Imports no third-party module."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kctl.errors import ConfigError, UsageError
from kctl.secrets import PASSWORD_VARIABLE, secret_of
from kctl_agent.kafka.security import Security
from kctl_agent.secrecy import check_private

if TYPE_CHECKING:
    from kctl.config.clusters import ClusterSection, ContextSection, SecuritySection
    from kctl.config.sections import Config, KafkaSection


class ClusterAccess(NamedTuple):
    """How to reach a cluster. Its `repr` shows no secrets."""

    servers: tuple[str, ...]
    setting: str = "-b"
    security: Security = Security()

    @property
    def named(self) -> str:
        return ",".join(self.servers)

    def __repr__(self) -> str:
        return f"Access({self.named}, {self.security.protocol})"

    def client_settings(self) -> dict[str, Any]:
        return {"bootstrap_servers": list(self.servers)} | self.security.client_settings(_read_token)


def plain(servers: str) -> ClusterAccess:
    """Returns unencrypted access to `servers`: `host:port`, separated by commas."""
    return ClusterAccess(tuple(server.strip() for server in servers.split(",") if server.strip()))


def of_context(file: Path, name: str, env: Mapping[str, str] = os.environ) -> ClusterAccess:
    """Returns the access to the cluster of `[contexts.NAME]`, with its secrets. Raises ConfigError, UsageError."""
    from kctl.config.load import contexts  # takes 17 ms, which `-b` alone does not need

    known = contexts(file)
    if name not in known:
        listed = ", ".join(sorted(known)) or "none; see [contexts.NAME] in docs/configuration.md"
        raise UsageError(f"{file} has no context `{name}`; there are {listed}")
    return _secured(known[name], f"contexts.{name}", file, env)


def of_fleet(config: Config, env: Mapping[str, str] = os.environ) -> ClusterAccess:
    """Returns the access to a fleet's cluster, with its secrets. Raises ConfigError."""
    return _secured(config.kafka, "kafka", config.path, env)


def of_cluster(name: str, cluster: ClusterSection, path: Path, env: Mapping[str, str] = os.environ) -> ClusterAccess:
    """Returns the access to the cluster of `[clusters.NAME]`, with its secrets. Raises ConfigError."""
    return _secured(cluster, f"clusters.{name}", path, env)


def _secured(
    cluster: ContextSection | ClusterSection | KafkaSection, section: str, file: Path, env: Mapping[str, str]
) -> ClusterAccess:
    folder, where = file.absolute().parent, f"{file}: {section}"

    def path(text: str) -> Path | None:
        return folder / text if text else None

    def name(text: str) -> str | None:
        return str(folder / text) if text else None

    _check_key(cluster, path, where)
    security = Security(
        cluster.security_protocol,
        name(cluster.tls_ca_file),
        name(cluster.tls_certificate_file),
        name(cluster.tls_key_file),
        secret_of(path(cluster.tls_key_password_file), f"{where}.tls_key_password_file"),
        cluster.tls_check_hostname,
        **_sasl(cluster, path, where, env),
    )
    return ClusterAccess(plain(cluster.bootstrap_servers).servers, f"{section}.bootstrap_servers", security)


def _check_key(security: SecuritySection, path: Callable[[str], Path | None], where: str) -> None:
    name = "tls_key_file" if security.tls_key_file else "tls_certificate_file"
    if (file := path(getattr(security, name))) is not None:
        try:
            check_private(file)  # OpenSSL does not check this
        except OSError as error:
            raise ConfigError(f"{where}.{name} {file} cannot be used: {error.strerror}") from None


def _sasl(
    security: SecuritySection, path: Callable[[str], Path | None], where: str, env: Mapping[str, str]
) -> dict[str, Any]:
    if not security.security_protocol.startswith("SASL_"):
        return {}
    if security.sasl_mechanism == "OAUTHBEARER":
        if not security.oauth_token_file:
            raise ConfigError(f"{where}: sasl_mechanism is OAUTHBEARER, but oauth_token_file is empty")
        secret_of(path(security.oauth_token_file), f"{where}.oauth_token_file")
        return {"mechanism": "OAUTHBEARER", "token_file": str(path(security.oauth_token_file))}
    password = secret_of(path(security.sasl_password_file), f"{where}.sasl_password_file") or env.get(PASSWORD_VARIABLE)
    if not security.sasl_username or not password:
        raise ConfigError(
            f"{where}: {security.sasl_mechanism} needs sasl_username, and a password in sasl_password_file or in the "
            f"variable {PASSWORD_VARIABLE}"
        )
    return {"mechanism": security.sasl_mechanism, "username": security.sasl_username, "password": password}


def _read_token(path: Path) -> str:
    token = (secret_of(path, f"oauth_token_file {path}") or "").strip()
    if not token:
        raise ConfigError(f"oauth_token_file {path} is empty")
    return token
