"""The configuration of `kctl exporter`: its file needs clusters, but no fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kctl.config.clusters import CheckpointSection, ClusterSection, checkpoint_mistakes
from kctl.config.load import read, read_document
from kctl.config.sections import SECTIONS, ExporterSection, HttpSection, LogSection, StatusSection
from kctl.errors import ConfigError

PORT = 9751
"""Differs from the default of `http.port`, because a fleet's master may run on the same machine."""


@dataclass(frozen=True, kw_only=True)
class ExporterConfig:
    """A checked configuration; `clusters` is never empty."""

    path: Path
    """The configuration file, or its default path if there is none."""
    clusters: Mapping[str, ClusterSection]
    checkpoints: Mapping[str, CheckpointSection]
    exporter: ExporterSection
    status: StatusSection
    http: HttpSection
    log: LogSection


def load_exporter(
    path: Path | None, env: Mapping[str, str], overrides: Mapping[str, str] | None = None, servers: str | None = None
) -> ExporterConfig:
    """Loads the sections of the exporter, as `kctl.config.load`; without a `[clusters.NAME]` the cluster is that of
    `[kafka]`. With `servers` the cluster is at these, unencrypted, and `path` may be None. Raises ConfigError, also if
    there is no cluster, if the file names clusters besides `servers`, or if a checkpoint has no cluster."""
    where = path.absolute() if path is not None else Path.cwd() / "kctl.toml"
    findings = read(where, {} if path is None else read_document(where), env, overrides)
    findings.refuse()
    findings.values.setdefault("http.port", PORT)
    clusters, own = findings.named("clusters", ClusterSection), findings.values.get("kafka.cluster", "default")
    if servers is not None:
        if clusters:
            raise ConfigError(
                f"{where} has [clusters.{next(iter(clusters))}], and -b names a cluster too: leave one of the two out"
            )
        clusters = {own: ClusterSection(bootstrap_servers=servers)}
    elif not clusters and "kafka.bootstrap_servers" in findings.values:
        clusters = {own: findings.built("kafka", ClusterSection)}
    if not clusters:
        raise ConfigError(f"{where} names no cluster: add [clusters.NAME] with bootstrap_servers, or [kafka]")
    parts: dict[str, Any] = {
        each: findings.built(each, SECTIONS[each]) for each in ("exporter", "status", "http", "log")
    }
    checkpoints = findings.named("checkpoints", CheckpointSection)
    findings.mistakes += [f"{where}: {each}" for each in checkpoint_mistakes(checkpoints, clusters)]
    findings.refuse()
    only = next(iter(clusters))
    checkpoints = {name: replace(each, cluster=each.cluster or only) for name, each in checkpoints.items()}
    return ExporterConfig(path=where, clusters=clusters, checkpoints=checkpoints, **parts)
