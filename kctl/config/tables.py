"""Sections of which there may be several, each under a name of its own: `[contexts.NAME]`, `[clusters.NAME]`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from kctl.config.sections import NAME
from kctl.config.values import allowed, from_toml
from kctl.errors import ConfigError

__all__ = ["named_tables"]

T = TypeVar("T")


def named_tables(section: str, kind: type[T], table: object, path: Path) -> dict[str, T]:
    """What stands under `section` in the file `path`, by name, as `kind`, a dataclass of settings; its files are
    relative to the folder of the configuration.

    Raises:
        ConfigError: an unknown or missing key, a value that is not allowed.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: `{section}` holds {section}: write [{section}.NAME] and their keys below")
    return {name: _table(section, kind, name, settings, path) for name, settings in table.items()}


def _table(section: str, kind: type[T], name: str, given: object, path: Path) -> T:
    if not isinstance(given, Mapping) or not re.fullmatch(NAME, name):
        article = section.removesuffix("s")
        raise ConfigError(f"{path}: a {article} is written [{section}.NAME], with its keys below; found `{name}`")
    settings = {setting.name: setting for setting in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    chosen: dict[str, Any] = {}
    for key, value in given.items():
        if key not in settings:
            near = difflib.get_close_matches(key, settings, n=1)
            hint = f"the nearest is `{near[0]}`" if near else f"its keys are {', '.join(settings)}"
            raise ConfigError(f"{path}: there is no key `{key}` in [{section}.{name}]; {hint}")
        try:
            chosen[key] = from_toml(settings[key], value)
        except ValueError:
            raise ConfigError(
                f"{path}: {section}.{name}.{key} is {value!r}, but it takes {allowed(settings[key])}"
            ) from None
    for key, setting in settings.items():
        if setting.metadata["required"] and key not in chosen:
            raise ConfigError(f"{path}: {section}.{name}.{key} is missing")
        if key.endswith("_file") and chosen.get(key):
            chosen[key] = str(path.parent / chosen[key])
    return kind(**chosen)
