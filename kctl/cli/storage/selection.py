"""Which messages are meant, as options of a command: made from `Selection`, which declares them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from datetime import datetime
from functools import wraps
from types import MappingProxyType
from typing import Annotated, Any, get_type_hints

from kctl.cli.command import option
from kctl.errors import UsageError
from kctl.fields import unix_seconds
from kctl_agent.storage.selection import Selection

_FLAGS = MappingProxyType({"older_than_seconds": "--older-than", "ids": "--id"})
_TYPES = MappingProxyType({"tuple[str, ...] | None": list[str] | None})


def choosing(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command that takes a `selection` an option for each field of it."""
    own = get_type_hints(command, include_extras=True)
    declared = fields(Selection)

    @wraps(command)
    def with_options(**given: Any) -> None:
        values = {each.name: _value(each, given.pop(each.name)) for each in declared}
        command(selection=Selection(**values), **given)

    parameters = [each for each in inspect.signature(command).parameters.values() if each.name != "selection"]
    options = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_option(each))
        for each in declared
    ]
    whole = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=own[each.name]) for each in parameters]
    with_options.__signature__ = inspect.Signature([*whole, *options])  # type: ignore[attr-defined]
    with_options.__annotations__ = {each.name: each.annotation for each in (*whole, *options)}
    return with_options


def params_of(selection: Selection, what: str) -> dict[str, Any]:
    """What was chosen, for the audit log."""
    return {"what": what} | selection.named


def _option(declared: Field[Any]) -> Any:
    type_ = get_type_hints(Selection)[declared.name]
    is_time = declared.metadata["metavar"] == "TIME"
    is_number = type_ in (int | None, float | None) and not is_time
    flag = _FLAGS.get(declared.name, f"--{declared.name.replace('_', '-')}")
    of_flag = option(
        flag, metavar=declared.metadata["metavar"], least=0 if is_number else None, help=declared.metadata["help"]
    )
    return Annotated[str | None if is_time else _TYPES.get(str(type_), type_), of_flag]


def _value(declared: Field[Any], given: Any) -> Any:
    if given is None or given == []:
        return None
    if declared.metadata["metavar"] != "TIME":
        return tuple(given) if isinstance(given, list) else given
    try:
        return unix_seconds(datetime.fromisoformat(given))
    except ValueError:
        raise UsageError(f"{given!r} is no time: give one such as 2026-11-21T10:00:00Z") from None
