"""Options that select messages, made from the fields of `Selection`."""

from __future__ import annotations

import argparse
from dataclasses import Field, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any

from kctl.cli.command import Option
from kctl.errors import UsageError
from kctl.fields import unix_seconds
from kctl_agent.storage.selection import Selection

_FLAGS = MappingProxyType({"older_than_seconds": "--older-than", "ids": "--id"})
_KINDS = MappingProxyType({"int | None": "int", "float | None": "number", "tuple[str, ...] | None": "texts"})


def _option(declared: Field[Any]) -> Option:
    kind = "text" if _is_time(declared) else _KINDS.get(str(declared.type), "text")
    return Option(
        (_FLAGS.get(declared.name, f"--{declared.name.replace('_', '-')}"),),
        declared.metadata["help"],
        kind,
        declared.metadata["metavar"],
        least=0 if kind in ("int", "number") else None,
        parameter=declared.name,
    )


def selection(options: argparse.Namespace) -> Selection:
    return Selection(**{each.name: _value(each, getattr(options, each.name)) for each in fields(Selection)})


def _value(declared: Field[Any], given: Any) -> Any:
    if given is None or not _is_time(declared):
        return tuple(given) if isinstance(given, list) else given
    try:
        return unix_seconds(datetime.fromisoformat(given))
    except ValueError:
        raise UsageError(f"{given!r} is not a time: give one such as 2026-11-21T10:00:00Z") from None


def _is_time(declared: Field[Any]) -> bool:
    return bool(declared.metadata["metavar"] == "TIME")


SELECTION = tuple(map(_option, fields(Selection)))
