"""One value of a setting: from TOML, or from the text of a variable or flag, to its Python type, checked.

A value that is not allowed is a plain ValueError; `load.py` makes the sentence, with the words of `allowed`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

__all__ = ["allowed", "from_text", "from_toml", "kind_words", "shown"]

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
    """A value as it may be shown: a password inside a URL is not."""
    if setting.metadata["is_secret"] and isinstance(value, str):
        return re.sub(r"(//[^/@:]*):[^@]*@", r"\1:***@", value)
    return value


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
