"""`describe`: every method, with its parameters, its deadline, and whether it changes anything."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Param:
    name: str
    type: str
    """One of `string`, `integer`, `number`, `boolean`, `array`; later releases may have more."""
    summary: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True)
class Method:
    method: str
    rpc: str | None = None
    summary: str | None = None
    params: tuple[Param, ...] = ()
    deadline_ms: int | None = None
    changes: bool | None = None


@dataclass(frozen=True, slots=True)
class MethodsReply:
    """All methods, sorted by name."""

    methods: tuple[Method, ...] = ()
