"""`[contexts.NAME]` of a configuration file: clusters that `kctl kafka` may ask beside the fleet's own.

A file with nothing but contexts will do: it describes no fleet, and `kctl kafka` needs none.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from kctl.config.document import read_document
from kctl.config.sections import NAME, Context
from kctl.config.values import allowed, from_toml
from kctl.errors import ConfigError

__all__ = ["FILES", "SECTION", "check", "contexts"]

SECTION = "contexts"
_SETTINGS = {setting.name: setting for setting in fields(Context)}
FILES = tuple(name for name in _SETTINGS if name.endswith("_file"))
"""Settings that are paths, relative to the folder of the configuration; empty: none."""


def contexts(path: Path) -> dict[str, Context]:
    """The contexts of a configuration file by name; nothing else of it is looked at.

    Raises:
        ConfigError: no such file, a syntax error, an unknown or missing key, a value that is not allowed.
    """
    path = path.absolute()
    return check(read_document(path).get(SECTION, {}), path)


def check(table: object, path: Path) -> dict[str, Context]:
    """The contexts in `table`, which is what stands under `contexts` in the file `path`.

    Raises:
        ConfigError: as `contexts`.
    """
    if not isinstance(table, Mapping):
        raise ConfigError(f"{path}: `{SECTION}` holds contexts: write [{SECTION}.NAME] and their keys below")
    return {name: _context(name, settings, path) for name, settings in table.items()}


def _context(name: str, settings: object, path: Path) -> Context:
    if not isinstance(settings, Mapping) or not re.fullmatch(NAME, name):
        raise ConfigError(f"{path}: a context is written [{SECTION}.NAME], with its keys below; found `{name}`")
    chosen: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in _SETTINGS:
            near = difflib.get_close_matches(key, _SETTINGS, n=1)
            hint = f"the nearest is `{near[0]}`" if near else f"its keys are {', '.join(_SETTINGS)}"
            raise ConfigError(f"{path}: there is no key `{key}` in [{SECTION}.{name}]; {hint}")
        try:
            chosen[key] = from_toml(_SETTINGS[key], value)
        except ValueError:
            raise ConfigError(
                f"{path}: {SECTION}.{name}.{key} is {value!r}, but it takes {allowed(_SETTINGS[key])}"
            ) from None
    if "bootstrap_servers" not in chosen:
        raise ConfigError(f"{path}: {SECTION}.{name}.bootstrap_servers is missing")
    for key in FILES:
        if chosen.get(key):
            chosen[key] = str(path.parent / chosen[key])
    return Context(**chosen)
