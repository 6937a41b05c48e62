"""By what dead letters can be chosen, as parameters of a request and as JSON: what `Selection` declares."""

from __future__ import annotations

from dataclasses import Field as DeclaredField
from dataclasses import fields
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from kctl.fields import unix_seconds
from kctl_agent.storage.selection import Selection

MOST_IDS = 500
_WHOLE = Annotated[int, Field(ge=0, le=2**63 - 1)]
_TEXT = Annotated[str, Field(max_length=1000)]
_TYPES = MappingProxyType(
    {
        "int | None": _WHOLE | None,
        "float | None": Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None,
        "str | None": _TEXT | None,
        "tuple[str, ...] | None": Annotated[list[_TEXT], Field(max_length=MOST_IDS)] | None,
    }
)
"""The type of a field of `Selection` to that of a parameter."""


def _parameter(declared: DeclaredField[Any]) -> Any:
    is_time = declared.metadata["metavar"] == "TIME"
    type_ = datetime | None if is_time else _TYPES[str(get_type_hints(Selection)[declared.name])]
    return type_, Field(None, description=declared.metadata["help"])


if TYPE_CHECKING:
    Filter = BaseModel
else:
    Filter = create_model(
        "DeadLetterFilter",
        __config__=ConfigDict(extra="forbid"),
        **{each.name: _parameter(each) for each in fields(Selection)},
    )


def selection_of(given: Filter) -> Selection:
    """Times without a zone are in UTC."""
    names = {each.name for each in fields(Selection)}
    return Selection(**{name: _plain(value) for name, value in given.model_dump(include=names).items()})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return unix_seconds(value)
    return tuple(value) if isinstance(value, list) else value
