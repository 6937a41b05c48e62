"""`describe`: every method that is served, with its parameters, deadline and whether it changes anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Method", "MethodsReply", "Param", "ParamType"]

ParamType: TypeAlias = Literal["string", "integer", "number", "boolean", "array"]


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a command, as the caller writes it in `params`."""

    name: str
    type: str
    """A `ParamType`, as of this release."""
    summary: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Method:
    """What a caller may ask, and how."""

    method: str
    rpc: str | None = None
    summary: str | None = None
    params: tuple[Param, ...] = ()
    deadline_ms: int | None = None
    changes: bool | None = None


@dataclass(frozen=True, slots=True)
class MethodsReply:
    """Sorted by method."""

    methods: tuple[Method, ...] = ()
