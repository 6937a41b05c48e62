"""Settings found in a file, in variables and in flags: values, sources, and all mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, TypeVar

from kctl.config.clusters import NAMED, place_hint
from kctl.config.forms import NAME, Secrecy, Section, allowed, default_of, mark
from kctl.config.rules import uri_hint
from kctl.config.sections import SECTIONS
from kctl.config.values import from_text, from_toml, shown_url, wrong_entry
from kctl.errors import ConfigError

T = TypeVar("T", bound=Section)
SETTINGS: dict[str, Field[Any]] = {
    f"{section}.{setting.name}": setting for section, kind in SECTIONS.items() for setting in fields(kind)
}


def variable(name: str) -> str:
    """`kafka.group` -> `KCTL_KAFKA_GROUP`."""
    return "KCTL_" + name.replace(".", "_").upper()


class Findings:
    """Settings by `section.key`, also `contexts.NAME.key`. Collects mistakes, each as one sentence, so that all can be
    reported at once. Relative paths are relative to the folder of `path`."""

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
        """`origin` names the variable or flag in messages."""
        self._take(name, SETTINGS[name], text, origin, source)

    def take_unknown(self, sentence: str, word: str, known: Mapping[str, Iterable[str]], otherwise: str = "") -> None:
        """Reports an unknown word; the settings of the nearest known word do not count as missing."""
        import difflib  # only needed for an error

        close = difflib.get_close_matches(word, list(known), n=1)
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
        """Fills in defaults and makes paths absolute. If there are mistakes, use the section only to find more
        mistakes."""
        chosen = {each.name: self.values.get(f"{section}.{each.name}", default_of(each)) for each in fields(kind)}
        return kind(**{key: _anchored(value, self.path.parent) for key, value in chosen.items()})

    def named(self, section: str, kind: type[T]) -> dict[str, T]:
        return {name: self.built(f"{section}.{name}", kind) for name in self.names[section]}

    def refuse(self) -> None:
        """Ends with the mistakes, one per line, if there are any. Raises ConfigError."""
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
    """Formats a value as in TOML, shortened, and without a password."""
    text = json.dumps(shown_url(value) if isinstance(value, str) else value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _anchored(value: Any, folder: Path) -> Any:
    if isinstance(value, tuple):
        return tuple(_anchored(item, folder) for item in value)
    return folder / value if isinstance(value, Path) else value
