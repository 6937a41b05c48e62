"""A configuration file as TOML; an error of syntax names its line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from kctl.errors import ConfigError

__all__ = ["read_document"]


def read_document(path: Path) -> dict[str, Any]:
    """The file's tables, not checked any further.

    Raises:
        ConfigError: no such file, not readable, or not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {path}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {_line_first(str(error), text)}") from None


def _line_first(message: str, text: str) -> str:
    """`Expected '=' (at line 3, column 7)` -> `line 3, column 7: Expected '='`; the end is a line too."""
    what, _, where = message.rstrip(")").rpartition(" (at ")
    if where == "end of document":
        where = f"line {text.count(chr(10)) + (not text.endswith(chr(10)))}"
    return f"{where}: {what}" if what else message
