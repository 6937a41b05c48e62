"""A configuration file as TOML; a syntax error names its line."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from kctl.errors import ConfigError
from kctl.ownership import refuse_others
from kctl.regular_files import open_regular

_LIMIT_BYTES = 1024 * 1024


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
