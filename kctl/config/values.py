"""One value of a setting: from TOML, or from the text of a variable or flag, to its Python type, checked.

A value that is not allowed is a plain ValueError; `load.py` makes the sentence, with the words of `allowed`. The type
of a setting is read as its annotation stands in `sections.py`, one of the eight of `_KIND_WORDS`: to have it evaluated
(`typing.get_type_hints`) takes 1 ms, more than to read the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

from kctl_agent.secrecy import SECRET_NAMES

__all__ = ["allowed", "from_text", "from_toml", "kind_words", "shown", "shown_url"]

_KIND_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "Path": "a path",
    "tuple[str, ...]": "a list of texts",
    "tuple[Path, ...]": "a list of paths",
    "Mapping[str, str]": "a table of texts",
}
HIDDEN = "***"
_TRUTH = {"true": True, "false": False}


def kind_words(setting: Field[Any]) -> str:
    """The type of a setting in words: `a list of texts`."""
    return _KIND_WORDS[str(setting.type)]


def allowed(setting: Field[Any]) -> str:
    """What a setting takes, in words: `a whole number from 0 to 65535`."""
    rule = setting.metadata
    if rule["choices"]:
        return " or ".join(f'"{choice}"' for choice in rule["choices"])
    words = kind_words(setting)
    if rule["pattern"]:
        words = f"{words}: {rule['pattern'][1]}"
    lowest, highest = rule["minimum"], rule["maximum"]
    if lowest is not None and highest is not None:
        return f"{words} from {lowest:.12g} to {highest:.12g}"
    if lowest is not None:
        return f"{words}, at least {lowest:.12g}"
    return words


def shown(setting: Field[Any], value: Any) -> Any:
    """A value as it may be shown: without passwords inside a URL, and in a table without what its name or its text
    declares secret."""
    if isinstance(value, Mapping):
        return {name: _shown_entry(name, text) for name, text in value.items()}
    if setting.metadata["is_secret"] and isinstance(value, str):
        return shown_url(value)
    return value


def _shown_entry(name: str, text: str) -> str:
    """As Spark itself redacts: a text that speaks of a secret, such as Java options, is hidden as a whole."""
    is_secret = any(re.search(SECRET_NAMES, each) for each in (name, text))
    return HIDDEN if is_secret and text else shown_url(text)


def shown_url(url: str) -> str:
    """A URL without its password. Up to the last `@` is user and password: one that is not written as %40 belongs to
    the password."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url
    place, mark, query = rest.partition("?")
    if "@" in query.partition("=")[0]:
        place, mark, query = rest, "", ""
    credentials, at, host = place.rpartition("@")
    user, colon, _ = credentials.partition(":")
    pairs = [pair.partition("=") for pair in query.split("&")]
    query = "&".join(
        f"{name}{'=' + HIDDEN if re.search(SECRET_NAMES, name) else sign + text}" for name, sign, text in pairs
    )
    return f"{scheme}://{user}{':' + HIDDEN if colon else ''}{at}{host}{mark}{query}"


def from_toml(setting: Field[Any], value: object) -> Any:
    """The checked value of a setting as TOML gave it: paths as Path, lists as tuples, an integer for a number as float.

    Raises:
        ValueError: wrong type, out of range, not one of the choices.
    """
    converted = _of_kind(str(setting.type), value)
    _check(setting, converted)
    return converted


def from_text(setting: Field[Any], text: str) -> Any:
    """The checked value of a setting as a variable or flag gave it; lists and tables are separated by commas.

    Raises:
        ValueError: wrong type, out of range, not one of the choices.
    """
    text = text.strip()
    kind = str(setting.type)
    value: object = text
    if kind == "int":
        value = int(text)
    elif kind == "float":
        value = float(text)
    elif kind == "bool":
        value = _TRUTH.get(text.lower())
    elif kind.startswith("tuple"):
        value = [item.strip() for item in text.split(",") if item.strip()]
    elif kind.startswith("Mapping"):
        pairs = [item.partition("=") for item in text.split(",") if item.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise ValueError
        value = {key.strip(): item.strip() for key, _, item in pairs}
    return from_toml(setting, value)


def _of_kind(kind: str, value: object) -> Any:
    if kind in ("str", "Path") and isinstance(value, str) and "\0" not in value:
        if kind == "str":
            return value
        if value:
            return Path(value)
    elif isinstance(value, bool):
        if kind == "bool":
            return value
    elif kind == "int" and isinstance(value, int):
        return value
    elif kind == "float" and isinstance(value, int | float):
        return float(value)
    elif kind.startswith("tuple") and isinstance(value, list):
        item_kind = "Path" if "Path" in kind else "str"
        return tuple(_of_kind(item_kind, item) for item in value)
    elif kind.startswith("Mapping") and isinstance(value, Mapping):
        return _flattened(value)
    raise ValueError


def _flattened(table: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """`spark.ui.enabled = false` without quotes is a table in a table in a table for TOML; the reader meant one key."""
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


def _check(setting: Field[Any], value: Any) -> None:
    rule = setting.metadata
    if rule["required"] and not value:
        raise ValueError
    if rule["choices"] and value not in rule["choices"]:
        raise ValueError
    if rule["pattern"]:
        items = value if isinstance(value, tuple) else (value,)
        if not all(re.fullmatch(rule["pattern"][0], item) for item in items):
            raise ValueError
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    if rule["minimum"] is not None and value < rule["minimum"]:
        raise ValueError
    if rule["maximum"] is not None and value > rule["maximum"]:
        raise ValueError
