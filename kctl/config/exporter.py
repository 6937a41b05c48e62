"""What `kctl exporter` reads of a configuration file: no fleet need be described there, only clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from kctl.config.load import CLUSTERS, clusters, read, sections
from kctl.config.sections import Cluster, Exporter, Http, Log, Status
from kctl.errors import ConfigError

__all__ = ["PORT", "ExporterConfig", "load_exporter"]

PORT = 9751
"""Where nothing else is set: a fleet's master on the same machine has the default of `http.port`."""
_SECTIONS = ("exporter", "status", "http", "log")


@dataclass(frozen=True, kw_only=True)
class ExporterConfig:
    """A checked configuration; `clusters` is never empty."""

    path: Path
    """The file; without one, where it would be."""
    clusters: Mapping[str, Cluster]
    exporter: Exporter
    status: Status
    http: Http
    log: Log


def load_exporter(
    path: Path | None, env: Mapping[str, str], overrides: Mapping[str, str] | None = None, servers: str | None = None
) -> ExporterConfig:
    """As `kctl.config.load`, of the sections `[exporter]`, `[status]`, `[http]`, `[log]` and `[clusters.NAME]`; without
    a `[clusters.NAME]` the cluster is that of `[kafka]`. With `servers` it is the one at these, unencrypted, and
    `path` may be None.

    Raises:
        ConfigError: as `kctl.config.load`; or there is no cluster, or `servers` beside those of the file.
    """
    where = path.absolute() if path is not None else Path.cwd() / "kctl.toml"
    values, _, document = read(None if path is None else where, env, overrides)
    values.setdefault("http.port", PORT)
    built = sections(where, values, _SECTIONS)
    if servers is not None:
        if given := list(document.get(CLUSTERS, {})):
            raise ConfigError(
                f"{where} has [clusters.{given[0]}], and -b names a cluster too: leave one of the two out"
            )
        name = values.get("kafka.cluster", "default")
        return ExporterConfig(path=where, clusters={name: Cluster(bootstrap_servers=servers)}, **built)
    named = clusters(document.get(CLUSTERS, {}), where)
    if not named and "kafka.bootstrap_servers" in values:
        own = {each.name: values[f"kafka.{each.name}"] for each in fields(Cluster) if f"kafka.{each.name}" in values}
        named = {values.get("kafka.cluster", "default"): Cluster(**own)}
    if not named:
        raise ConfigError(f"{where} names no cluster: add [clusters.NAME] with bootstrap_servers, or [kafka]")
    return ExporterConfig(path=where, clusters=named, **built)
