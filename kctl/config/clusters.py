"""The sections `[contexts.NAME]` and `[clusters.NAME]`, one for each Kafka cluster: servers, TLS and SASL; and
`[checkpoints.NAME]`, one for each Spark query that reads one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from kctl.config.forms import NOW, Form, Section, Servers, Topic, number


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


@dataclass(frozen=True, kw_only=True)
class CheckpointSection(Section):
    """The checkpoint of a Spark query that is shown as a consumer group (spark-jobs.md); any number of them, each under
    its own name."""

    effect: ClassVar = NOW

    uri: Annotated[str, Form(r"/.+|(file|s3|s3a)://.+", "a path that begins with `/`, or `s3://BUCKET/PREFIX`")]
    """Where the checkpoint is. It is read, and never written to."""
    cluster: str = ""
    """The `[clusters.NAME]` that the query reads; empty: the only one. A fleet has its own."""
    group: str = ""
    """The group that it is shown as; empty: NAME. A group of Kafka with this name is not shown."""
    topics: tuple[Topic, ...] = ()
    """The topics that are in this cluster, for a query that reads several; others are unknown. Empty: all are here."""
    every: Annotated[str, Form(r"|[1-9]\d{0,5}[smhd]", "a number and a unit, such as `90s`, `15m` or `24h`")] = ""
    """How often the job is started that does not run all the time; in between it is healthy."""
    interval_seconds: Annotated[float, number(1, 3600)] = 60.0
    """How often the checkpoint is read: two listings, one file's state, and a few small files after each batch."""


def by_group(checkpoints: Mapping[str, CheckpointSection]) -> dict[str, CheckpointSection]:
    """Returns the sections by the group that each is shown as."""
    return {each.group or name: each for name, each in checkpoints.items()}


def seconds_of(text: str) -> float | None:
    """Parses a time: `15m` -> 900.0; None for the empty text."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[text[-1]] if text else None


NAMED: dict[str, type[Section]] = {
    "contexts": ContextSection,
    "clusters": ClusterSection,
    "checkpoints": CheckpointSection,
}
