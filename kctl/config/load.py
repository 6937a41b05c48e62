"""Loads a checked `Config` from a TOML file, `KCTL_*` variables and flags, in order of increasing priority; also the
configuration of `kctl exporter`, whose file needs clusters, but no fleet; and `[contexts.NAME]`: clusters for `kctl
kafka`, besides the fleet's own."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kctl.config.clusters import CheckpointSection, ClusterSection, ContextSection, checkpoint_mistakes
from kctl.config.findings import SETTINGS, Findings, variable
from kctl.config.rules import mistakes
from kctl.config.sections import SECTIONS, Config, ExporterSection, HttpSection, LogSection, StatusSection
from kctl.config.storage import table_folder
from kctl.errors import ConfigError
from kctl.ownership import refuse_others
from kctl.regular_files import open_regular

LAKE_TRIGGER_SECONDS = 20.0
"""A batch leaves three inodes for the week that a table keeps older versions: 93,000 (benchmarks/README.md)."""
_EXPORTER_PORT = 9751
"""Differs from the default of `http.port`, because a fleet's master may run on the same machine."""
_LIMIT_BYTES = 1024 * 1024
_CONTEXTS = "contexts"
_SECTION_PREFIXES = tuple(f"KCTL_{section.upper()}_" for section in SECTIONS)
_BY_VARIABLE = {variable(name): name for name in SETTINGS}


def load(path: Path, env: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> Config:
    """Reads and checks a configuration: defaults < file < environment < overrides (`section.key` -> text, from flags).

    Relative paths are relative to the file's folder and become absolute. Raises ConfigError with all mistakes, one per
    line; also as root if the file or a folder of the fleet belongs to another user.
    """
    path = path.absolute()
    document = read_document(path)
    findings = read(path, document, env, overrides)
    findings.mistakes += _missing(findings, document)
    if "fleet.data_dir" in findings.values:
        findings.values.setdefault("storage.path", findings.values["fleet.data_dir"] / "storage.sqlite")
    if findings.values.get("storage.mode") == "lake":
        findings.values.setdefault("workers.trigger_seconds", LAKE_TRIGGER_SECONDS)
    sections: dict[str, Any] = {section: findings.built(section, kind) for section, kind in SECTIONS.items()}
    sources = {name: findings.sources.get(name, "default") for name in SETTINGS}
    checkpoints = findings.named("checkpoints", CheckpointSection)
    config = Config(path=path, sources=sources, checkpoints=checkpoints, **sections)
    findings.mistakes += [each for each in mistakes(config) if not any(name in each for name in findings.wrong)]
    findings.refuse()
    fleet = config.fleet
    for place in (fleet.run_dir, fleet.data_dir, fleet.log_dir, config.storage.path, table_folder(config)):
        if place is not None:
            refuse_others(place)
    return config


def read(
    path: Path, document: Mapping[str, Any], env: Mapping[str, str], overrides: Mapping[str, str] | None = None
) -> Findings:
    """Collects the settings of file, variables and flags; rejects nothing yet."""
    findings = Findings(path)
    findings.take_document(document)
    for origin, text in env.items():
        if origin in _BY_VARIABLE:
            findings.take_text(_BY_VARIABLE[origin], text, origin, origin)
        elif is_setting_variable(origin):
            known = {variable: [name] for variable, name in _BY_VARIABLE.items()}
            findings.take_unknown(f"the variable {origin} is not a setting", origin, known)
    for name, text in (overrides or {}).items():
        if name in SETTINGS:
            findings.take_text(name, text, "the command line", "flag")
        else:
            findings.take_unknown(f"there is no setting `{name}`", name, {each: [each] for each in SETTINGS})
    return findings


def contexts(path: Path) -> dict[str, ContextSection]:
    """Reads only the contexts of a file and ignores its other sections. Raises ConfigError."""
    found = Findings(path.absolute())
    found.take_document({_CONTEXTS: read_document(found.path).get(_CONTEXTS, {})})
    found.refuse()
    return found.named(_CONTEXTS, ContextSection)


def contexts_alone(path: Path) -> tuple[str, ...]:
    """Returns the contexts of a file that has nothing else. Raises ConfigError."""
    document = read_document(path)
    return tuple(document[_CONTEXTS]) if document.keys() == {_CONTEXTS} else ()


def is_setting_variable(name: str) -> bool:
    """Whether an environment variable is a setting, or is rejected because it looks like one."""
    return name.startswith(_SECTION_PREFIXES)


def _missing(findings: Findings, document: Mapping[str, Any]) -> list[str]:
    sentences = [each for section, kind in SECTIONS.items() for each in findings.missing(section, kind)]
    names = findings.names[_CONTEXTS]
    if sentences and names and len(document) == 1:
        hint = f"`kctl kafka COMMAND --context {names[0]}`"
        return [f"{findings.path} has no [kafka]; its contexts are {', '.join(names)}: {hint}"]
    return sentences


def read_document(path: Path) -> dict[str, Any]:
    """Checks nothing but the syntax. Raises ConfigError, also as root for another user's file."""
    try:
        with open(open_regular(path, os.O_RDONLY, is_link_fine=True), encoding="utf-8") as file:
            refuse_others(path, file.fileno())
            text = file.read(_LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {path}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(text) > _LIMIT_BYTES:
        raise ConfigError(f"{path} is no configuration: it has more than {_LIMIT_BYTES} characters")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {_line_first(str(error), text)}") from None


def _line_first(message: str, text: str) -> str:
    """`Expected '=' (at line 3, column 7)` -> `line 3, column 7: Expected '='`."""
    what, _, where = message.rstrip(")").rpartition(" (at ")
    if where == "end of document":
        where = f"line {text.count(chr(10)) + (not text.endswith(chr(10)))}"
    return f"{where}: {what}" if what else message


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
    findings.values.setdefault("http.port", _EXPORTER_PORT)
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
