"""Converts and checks the value of a setting from TOML, an environment variable or a flag.

An invalid value raises a ValueError without a message, and `Findings` writes the message.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

import msgspec

from kctl.config.forms import Form, Secrecy, items, mark, plain
from kctl_agent.secrecy import SECRET_NAMES

HIDDEN = "***"


def as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def shown(setting: Field[Any], value: Any) -> Any:
    """Returns a value for display. Hides passwords in URLs, and secret entries of a TOML table."""
    if isinstance(value, Mapping):
        return {name: _shown_entry(name, text) for name, text in value.items()}
    return shown_url(value) if mark(setting.type, Secrecy) and isinstance(value, str) else value


def _shown_entry(name: str, text: str) -> str:
    # As in Spark, the text counts too, because Java options may contain a secret.
    is_secret = any(re.search(SECRET_NAMES, each) for each in (name, text))
    return HIDDEN if is_secret and text else shown_url(text)


def shown_url(url: str) -> str:
    """Hides the password and secret parameters of a URL."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url
    place, mark, query = rest.partition("?")
    if "@" in query.partition("=")[0]:
        place, mark, query = rest, "", ""
    # The last `@`, because a password may contain an unquoted one.
    credentials, at, host = place.rpartition("@")
    user, colon, _ = credentials.partition(":")
    pairs = [pair.partition("=") for pair in query.split("&")]
    query = "&".join(
        f"{name}{'=' + HIDDEN if re.search(SECRET_NAMES, name) else sign + text}" for name, sign, text in pairs
    )
    return f"{scheme}://{user}{':' + HIDDEN if colon else ''}{at}{host}{mark}{query}"


def from_toml(setting: Field[Any], value: object, *, is_text: bool = False) -> Any:
    """Converts a value from TOML. A path becomes a Path, and a list becomes a tuple. Pass `is_text` to parse numbers
    and booleans from a text. Raises ValueError."""
    if isinstance(value, Mapping):
        value = _flattened(value)
    try:
        converted = msgspec.convert(value, setting.type, strict=not is_text, dec_hook=_path)
    except msgspec.ValidationError:
        raise ValueError from None
    if not _is_fit(setting.type, converted):
        raise ValueError
    return converted


def from_text(setting: Field[Any], text: str) -> Any:
    """Converts a value from a variable or flag. Commas separate the items of lists and tables. Raises ValueError."""
    kind, text = plain(setting.type), text.strip()
    given = [item.strip() for item in text.split(",") if item.strip()]
    if kind is tuple:
        return from_toml(setting, given)
    if kind is not Mapping:
        return from_toml(setting, text, is_text=True)
    pairs = [item.partition("=") for item in given]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError
    return from_toml(setting, {key.strip(): item.strip() for key, _, item in pairs})


def wrong_entry(setting: Field[Any], value: object) -> object:
    is_list, form = plain(setting.type) is tuple, mark(setting.type, Form)
    if isinstance(value, str) and (is_list or (form and "commas" in form.words)):
        value = [entry.strip() for entry in value.split(",")]
    for entry in value if isinstance(value, list) and len(value) > 1 else ():
        try:
            from_toml(setting, [entry] if is_list else entry)
        except ValueError:
            return entry
    return None


def _flattened(table: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    # For TOML, `spark.ui.enabled = false` without quotes is nested tables.
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            flat[prefix + key] = str(value).lower()
        elif isinstance(value, str | int | float):
            flat[prefix + key] = str(value)
        else:
            raise ValueError
    return flat


def _is_fit(kind: Any, value: Any) -> bool:
    if isinstance(value, tuple):
        return all(_is_fit(items(kind)[0], item) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    form = mark(kind, Form)
    return "\0" not in str(value) and (form is None or re.fullmatch(form.pattern, value) is not None)


def _path(kind: type, value: object) -> Path:
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    raise ValueError
