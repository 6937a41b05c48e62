"""The sections `[contexts.NAME]` and `[clusters.NAME]`, one for each Kafka cluster: servers, TLS and SASL."""

from dataclasses import dataclass
from typing import Literal

from kctl.config.forms import Section, Servers


@dataclass(frozen=True, kw_only=True)
class SecuritySection(Section):
    """TLS and SASL towards brokers. Paths are relative to the configuration file."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether TLS (`SSL`) and SASL are spoken, in Kafka's own words."""
    tls_ca_file: str = ""
    """Certificates (PEM) that the broker's is checked with; empty: the system's."""
    tls_certificate_file: str = ""
    """Our own certificate (PEM), where the broker asks for one."""
    tls_key_file: str = ""
    """The private key (PEM) of that certificate."""
    tls_key_password_file: str = ""
    """A file that holds the password of the private key."""
    tls_check_hostname: bool = True
    """Whether the broker's certificate must name the host that was asked."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "SCRAM-SHA-512"
    """The SASL mechanism by which kctl proves its identity."""
    sasl_username: str = ""
    """The user name for `PLAIN` and `SCRAM-…`."""
    sasl_password_file: str = ""
    """A file that holds the password of `sasl_username`; empty: the variable `KCTL_SASL_PASSWORD`."""
    oauth_token_file: str = ""
    """A file that holds the token of `OAUTHBEARER`; read at each authentication."""


@dataclass(frozen=True, kw_only=True)
class _Servers(Section):
    """The servers of a cluster, the setting before TLS and SASL."""

    bootstrap_servers: Servers
    """The brokers to ask first, as `host:port`, separated by commas."""


@dataclass(frozen=True, kw_only=True)
class ContextSection(SecuritySection, _Servers):
    """A cluster for `kctl kafka --context NAME`, with TLS and SASL; any number of them, each under its own name. Fleets
    do not read them. A file may hold nothing else."""


@dataclass(frozen=True, kw_only=True)
class ClusterSection(SecuritySection, _Servers):
    """A cluster for `kctl exporter`, with TLS and SASL; any number of them, each under its own name, which is the label
    `cluster` of its metrics. Fleets do not read them. A file may hold nothing else."""


NAMED: dict[str, type[Section]] = {"contexts": ContextSection, "clusters": ClusterSection}
