"""Loads a checked `Config` from a TOML file, `KCTL_*` variables and flags, in order of increasing priority.

Also loads the configuration of `kctl exporter`, whose file needs clusters but no fleet. For `kctl kafka --context`,
loads only the sections `[contexts.NAME]`.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from kctl.config.clusters import (
    NAMED,
    CheckpointSection,
    ClusterSection,
    ContextSection,
    checkpoint_mistakes,
    place_hint,
)
from kctl.config.forms import NAME, Secrecy, Section, allowed, default_of, mark
from kctl.config.rules import mistakes, uri_hint
from kctl.config.sections import SECTIONS, Config, ExporterSection, HttpSection, LogSection, StatusSection
from kctl.config.storage import table_folder
from kctl.config.values import from_text, from_toml, shown_url, wrong_entry
from kctl.errors import ConfigError
from kctl.ownership import open_regular, refuse_others

T = TypeVar("T", bound=Section)
SETTINGS: dict[str, Field[Any]] = {
    f"{section}.{setting.name}": setting for section, kind in SECTIONS.items() for setting in fields(kind)
}


def variable(name: str) -> str:
    """Returns the environment variable of a setting: `kafka.group` -> `KCTL_KAFKA_GROUP`."""
    return "KCTL_" + name.replace(".", "_").upper()


class Findings:
    """Collects settings and the mistakes in them, so that all mistakes are reported at once. The settings have names
    such as `section.key` or `contexts.NAME.key`. Relative paths are relative to the folder of the file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.names: dict[str, list[str]] = {section: [] for section in NAMED}
        self.mistakes: list[str] = []
        self.wrong: set[str] = set()

    def take_document(self, document: Mapping[str, Any]) -> None:
        for section, table in document.items():
            if section in NAMED:
                self._take_named(section, table)
            elif section in SECTIONS:
                self._take_table(section, SECTIONS[section], table)
            else:
                known = {each: _names(each, kind) for each, kind in SECTIONS.items()}
                self.take_unknown(f"{self.path}: there is no section [{section}]", section, known)

    def take_text(self, name: str, text: str, origin: str, source: str) -> None:
        """Takes a setting from a variable or flag. Errors begin with `origin`. `Config.sources` gets `source`."""
        self._take(name, SETTINGS[name], text, origin, source)

    def take_unknown(self, sentence: str, word: str, known: Mapping[str, Iterable[str]], otherwise: str = "") -> None:
        """Reports that `word` is an unknown section, key, variable or flag, and suggests the nearest name in `known`.
        `known` maps each name to the full names of its settings, such as `kafka.group`."""
        import difflib  # only needed for an error

        close = difflib.get_close_matches(word, list(known), n=1)
        # `missing` then does not report the settings of the suggested name.
        self.wrong.update(*(known[each] for each in close))
        self.mistakes.append(sentence + (f"; the nearest is `{close[0]}`" if close else otherwise))

    def missing(self, section: str, kind: type[Section]) -> list[str]:
        sentences = []
        for setting in fields(kind):
            name = f"{section}.{setting.name}"
            if default_of(setting) is None and name not in self.values and name not in self.wrong:
                self.wrong.add(name)
                or_variable = f", or {variable(name)}" if name in SETTINGS else ""
                sentences.append(f"{self.path}: {name} is missing: set `{setting.name}` in [{section}]{or_variable}")
        return sentences

    def built(self, section: str, kind: type[T]) -> T:
        """Returns a section with defaults and absolute paths. A required setting that is missing or wrong is None."""
        chosen = {each.name: self.values.get(f"{section}.{each.name}", default_of(each)) for each in fields(kind)}
        return kind(**{key: _anchored(value, self.path.parent) for key, value in chosen.items()})

    def named(self, section: str, kind: type[T]) -> dict[str, T]:
        return {name: self.built(f"{section}.{name}", kind) for name in self.names[section]}

    def refuse(self) -> None:
        """If there are mistakes, raises ConfigError with one mistake per line."""
        if self.mistakes:
            raise ConfigError("\n".join(self.mistakes))

    def _take_named(self, section: str, tables: object) -> None:
        if not isinstance(tables, Mapping):
            hint = f"write [{section}.NAME] and their keys below"
            self.mistakes.append(f"{self.path}: `{section}` holds {section}: {hint}")
            return
        for name, table in tables.items():
            if isinstance(table, Mapping) and re.fullmatch(NAME, name):
                self.names[section].append(name)
                self._take_table(f"{section}.{name}", NAMED[section], table)
                self.mistakes += self.missing(f"{section}.{name}", NAMED[section])
            else:
                hint = f"is written [{section}.NAME], with its keys below; found `{name}`"
                self.mistakes.append(f"{self.path}: a {section.removesuffix('s')} {hint}")

    def _take_table(self, section: str, kind: type[Section], table: object) -> None:
        if not isinstance(table, Mapping):
            self.mistakes.append(f"{self.path}: `{section}` is a section: write [{section}] and its keys below")
            self.wrong.update(_names(section, kind))
            return
        own = {setting.name: setting for setting in fields(kind)}
        for key, value in table.items():
            if key in own:
                self._take(f"{section}.{key}", own[key], value, f"{self.path}", "file")
            else:
                elsewhere = _elsewhere(key)
                known = {} if elsewhere else {each: [f"{section}.{each}"] for each in own}
                sentence = f"{self.path}: there is no key `{key}` in [{section}]"
                self.take_unknown(sentence, key, known, elsewhere or f"; its keys are {', '.join(own)}")

    def _take(self, name: str, setting: Field[Any], value: Any, origin: str, source: str) -> None:
        self.sources[name] = source
        try:
            self.values[name] = from_toml(setting, value) if source == "file" else from_text(setting, value)
        except ValueError:
            self.wrong.add(name)
            entry = wrong_entry(setting, value)
            given = f"is {_given(value)}" if entry is None else f"has {_given(entry)}"
            given = "is not one" if mark(setting.type, Secrecy) else given
            hint = uri_hint(value) if name == "storage.uri" and isinstance(value, str) else ""
            if name.startswith("checkpoints.") and name.endswith(".uri") and isinstance(value, str):
                hint = place_hint(value) and f"; {place_hint(value)}"
            self.mistakes.append(f"{origin}: {name} {given}, but it takes {allowed(setting.type)}{hint}")


def _names(section: str, kind: type[Section]) -> list[str]:
    return [f"{section}.{setting.name}" for setting in fields(kind)]


def _elsewhere(key: str) -> str:
    sections = [name.partition(".")[0] for name in SETTINGS if name.partition(".")[2] == key]
    return f"; it belongs to {' or '.join(f'[{section}]' for section in sections)}" if sections else ""


def _given(value: object) -> str:
    # As in TOML, shortened, and without a password.
    text = json.dumps(shown_url(value) if isinstance(value, str) else value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _anchored(value: Any, folder: Path) -> Any:
    if isinstance(value, tuple):
        return tuple(_anchored(item, folder) for item in value)
    return folder / value if isinstance(value, Path) else value


LAKE_TRIGGER_SECONDS = 20.0
"""Each batch leaves three inodes for the week that a table keeps old versions: 93,000 (benchmarks/README.md)."""
_LIMIT_BYTES = 1024 * 1024
_CONTEXTS = "contexts"
_SECTION_PREFIXES = tuple(f"KCTL_{section.upper()}_" for section in SECTIONS)
_BY_VARIABLE = {variable(name): name for name in SETTINGS}


def load(path: Path, env: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> Config:
    """Reads and checks a configuration: defaults < file < environment < overrides (`section.key` -> text, from flags).

    Relative paths are relative to the file's folder and become absolute. Raises ConfigError with all mistakes, one per
    line. As root, also rejects the file, the fleet's folders or its storage if another user owns or can change them.
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
    """Returns the settings of file, variables and flags, with the mistakes in them."""
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
    """Reads only the contexts of a file. Raises ConfigError."""
    found = Findings(path.absolute())
    found.take_document({_CONTEXTS: read_document(found.path).get(_CONTEXTS, {})})
    found.refuse()
    return found.named(_CONTEXTS, ContextSection)


def contexts_alone(path: Path) -> tuple[str, ...]:
    """Returns the names of a file's contexts, or () if the file has other sections. Raises ConfigError."""
    document = read_document(path)
    return tuple(document[_CONTEXTS]) if document.keys() == {_CONTEXTS} else ()


def is_setting_variable(name: str) -> bool:
    """Whether a variable has a section's prefix, such as `KCTL_KAFKA_`, even if the setting does not exist."""
    return name.startswith(_SECTION_PREFIXES)


def _missing(findings: Findings, document: Mapping[str, Any]) -> list[str]:
    sentences = [each for section, kind in SECTIONS.items() for each in findings.missing(section, kind)]
    names = findings.names[_CONTEXTS]
    if sentences and names and len(document) == 1:
        hint = f"`kctl kafka COMMAND --context {names[0]}`"
        return [f"{findings.path} has no [kafka]; its contexts are {', '.join(names)}: {hint}"]
    return sentences


def read_document(path: Path) -> dict[str, Any]:
    """Parses a file as TOML. Raises ConfigError. As root, also rejects a file that another user owns or can change."""
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
        raise ConfigError(f"{path} is not a configuration: it has more than {_LIMIT_BYTES} characters")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {_line_first(str(error), text)}") from None


def _line_first(message: str, text: str) -> str:
    # `Expected '=' (at line 3, column 7)` -> `line 3, column 7: Expected '='`
    what, _, where = message.rstrip(")").rpartition(" (at ")
    if where == "end of document":
        where = f"line {text.count(chr(10)) + (not text.endswith(chr(10)))}"
    hint = "; a text needs quotes" if what.startswith(("Invalid value", "Expected newline")) else ""
    return f"{where}: {what}{hint}" if what else message


@dataclass(frozen=True, kw_only=True)
class ExporterConfig:
    """A checked configuration of `kctl exporter`. `clusters` is never empty."""

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
    """Loads the exporter's configuration. Without `[clusters.NAME]`, the only cluster is that of `[kafka]`. If
    `servers` is given, the only cluster is that of these brokers, without TLS and SASL, and the file must not have
    `[clusters.NAME]`. Raises ConfigError."""
    where = path.absolute() if path is not None else Path.cwd() / "kctl.toml"
    findings = read(where, {} if path is None else read_document(where), env, overrides)
    findings.refuse()
    findings.values.setdefault("http.port", 9751)  # not the default: a fleet's master may run on the same machine
    clusters, own = findings.named("clusters", ClusterSection), findings.values.get("kafka.cluster", "default")
    if servers is not None:
        if clusters:
            raise ConfigError(
                f"{where} has [clusters.{next(iter(clusters))}], and -b names a cluster too: remove one of them"
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
