"""The sections `[contexts.NAME]` and `[clusters.NAME]` (Kafka clusters), and `[checkpoints.NAME]` (Spark queries)."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from kctl.config.forms import NOW, Form, Section, Servers, Topic, number


@dataclass(frozen=True, kw_only=True)
class SecuritySection(Section):
    """TLS and SASL for brokers. Paths are relative to the folder of the configuration file."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Whether to use TLS (`SSL`) and SASL."""
    tls_ca_file: str = ""
    """CA certificates (PEM) to verify the broker. Empty means the system's."""
    tls_certificate_file: str = ""
    """kctl's own certificate (PEM), if the broker requires one."""
    tls_key_file: str = ""
    """The private key (PEM) of `tls_certificate_file`."""
    tls_key_password_file: str = ""
    """A file with the password of `tls_key_file`."""
    tls_check_hostname: bool = True
    """Whether the broker's certificate must contain the requested host name."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = "SCRAM-SHA-512"
    """The SASL mechanism with which kctl authenticates."""
    sasl_username: str = ""
    """The user name for `PLAIN` and `SCRAM-…`."""
    sasl_password_file: str = ""
    """A file with the password of `sasl_username`. If empty, kctl uses the variable `KCTL_SASL_PASSWORD`."""
    oauth_token_file: str = ""
    """A file with the token of `OAUTHBEARER`. kctl reads it at each authentication."""


@dataclass(frozen=True, kw_only=True)
class _Servers(Section):
    bootstrap_servers: Servers
    """The first brokers to contact, as `host:port`, separated by commas."""


@dataclass(frozen=True, kw_only=True)
class ContextSection(SecuritySection, _Servers):
    """A cluster for `kctl kafka --context NAME`, with TLS and SASL. A file can have several contexts, and needs no
    other section. Fleets do not read contexts."""


@dataclass(frozen=True, kw_only=True)
class ClusterSection(SecuritySection, _Servers):
    """A cluster for `kctl exporter`, with TLS and SASL. NAME is the label `cluster` of the metrics. A file can have
    several clusters, and needs no other section. Fleets do not read this section."""


@dataclass(frozen=True, kw_only=True)
class CheckpointSection(Section):
    """The checkpoint of a Spark query. kctl shows the query as a consumer group (spark-jobs.md)."""

    effect: ClassVar = NOW

    uri: Annotated[
        str, Form(r"(file://)?/.+|s3a?://[^/]+/+[^/].*", "a path that begins with `/`, or `s3://BUCKET/PREFIX`")
    ]
    """The checkpoint, which kctl only reads."""
    cluster: str = ""
    """The `[clusters.NAME]` that the query reads. If empty, it is the only cluster, or in a fleet `kafka.cluster`."""
    group: str = ""
    """The group's name. Empty means NAME. kctl hides a Kafka group of this name."""
    topics: tuple[Topic, ...] = ()
    """The query's topics in this cluster, if the query also reads other clusters. The lag of other topics is unknown.
    Empty means all topics."""
    every: Annotated[str, Form(r"|[1-9]\d{0,5}[smhd]", "a number and a unit, such as `90s`, `15m` or `24h`")] = ""
    """The time between two runs of a scheduled job, such as `24h`. Between runs, the job counts as healthy."""
    interval_seconds: Annotated[float, number(1, 3600)] = 60.0
    """How often kctl reads the checkpoint. Each time, it lists two folders and reads at most a few small files."""


def by_group(checkpoints: Mapping[str, CheckpointSection]) -> dict[str, CheckpointSection]:
    return {each.group or name: each for name, each in checkpoints.items()}


def place_hint(uri: str) -> str:
    """Returns advice on a rejected checkpoint URI. The text is empty for a path or `file://`."""
    scheme, colon, _ = uri.partition("://")
    if scheme == "hdfs":
        return "kctl does not read HDFS: copy the checkpoint (hdfs dfs -get), or mount it"
    if scheme.startswith("s3"):
        return "write it as s3://BUCKET/PREFIX"
    return f"{scheme}:// is not tested: copy or mount the checkpoint" if colon and scheme != "file" else ""


def checkpoint_mistakes(
    checkpoints: Mapping[str, CheckpointSection], clusters: Collection[str], own_group: str = ""
) -> Iterator[str]:
    """Yields a sentence for each mistake: an unknown or missing cluster, or a group name that the fleet (`own_group`)
    or another checkpoint of the same cluster already uses."""
    shown: dict[tuple[str, str], str] = {}
    for name, each in checkpoints.items():
        cluster, group = each.cluster or ("" if len(clusters) > 1 else next(iter(clusters))), each.group or name
        if cluster not in clusters:
            given = f"is `{each.cluster}`" if each.cluster else "is missing"
            yield f"checkpoints.{name}.cluster {given}: it takes the name of a cluster: {', '.join(clusters)}"
        other = "kafka.group" if group == own_group else shown.setdefault((cluster, group), name)
        if other != name:
            yield f"checkpoints.{name} would be shown as group {group}, as {other} is: set checkpoints.{name}.group"


def seconds_of(text: str) -> float | None:
    """Converts `15m` to 900.0, and the empty text to None."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[text[-1]] if text else None


NAMED: dict[str, type[Section]] = {
    "contexts": ContextSection,
    "clusters": ClusterSection,
    "checkpoints": CheckpointSection,
}
