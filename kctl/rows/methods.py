"""The methods that agents, or the master, serve."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.rows import fields
from kctl_agent.wire import JsonObject

__all__ = ["MethodRow", "method_rows"]


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method that an agent serves; `params` as it describes them."""

    method: str
    rpc: str | None = None
    summary: str | None = None
    params: tuple[JsonObject, ...] = ()
    deadline_ms: int | None = None
    changes: bool | None = None


def method_rows(result: JsonObject) -> tuple[MethodRow, ...]:
    return tuple(
        MethodRow(
            method=fields.required(fields.text(row, "method"), "method"),
            rpc=fields.text(row, "rpc"),
            summary=fields.text(row, "summary"),
            params=tuple(fields.objects(row, "params") or ()),
            deadline_ms=fields.whole(row, "deadline_ms"),
            changes=fields.flag(row, "changes"),
        )
        for row in fields.objects(result, "methods") or ()
    )
