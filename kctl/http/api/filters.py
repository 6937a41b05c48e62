"""Which rows of a list are wanted; pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kctl_agent.rpc.wire import JsonObject

__all__ = ["chosen"]


def chosen(rows: list[JsonObject], min_lag: int | None = None, **wanted: Any) -> list[JsonObject]:
    """The rows whose fields have one of the wanted values; None wants all."""
    filters: list[tuple[str, Callable[[Any], bool]]] = [
        (name, frozenset(values).__contains__) for name, values in wanted.items() if values is not None
    ]
    if min_lag is not None:
        filters.append(("remaining_count", lambda lag: lag is not None and lag >= min_lag))
    return [row for row in rows if all(passes(row.get(name)) for name, passes in filters)] if filters else rows
