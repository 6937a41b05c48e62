"""Filters rows of a list and divides them into pages. Pure.

A page continues after the last row's key, so that rows that appear or disappear in between move nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kctl_agent.errors import BadParams
from kctl_agent.rpc.wire import JsonObject

MAX_ROWS = 10_000


def key_of(row: Mapping[str, Any], key: Sequence[str]) -> tuple[Any, ...]:
    """The values by which rows are sorted."""
    return tuple([row[each] for each in key])


PARTITION = ("topic", "partition")
NUMBERS = frozenset({"partition", "node_id"})
"""Key fields that are whole numbers; others are text."""


def chosen(rows: list[JsonObject], min_lag: int | None = None, **wanted: Any) -> list[JsonObject]:
    """Rows whose fields have one of the wanted values; None wants all."""
    filters: list[tuple[str, Callable[[Any], bool]]] = [
        (name, frozenset(values).__contains__) for name, values in wanted.items() if values is not None
    ]
    if min_lag is not None:
        filters.append(("remaining_count", lambda lag: lag is not None and lag >= min_lag))
    return [row for row in rows if all(passes(row.get(name)) for name, passes in filters)] if filters else rows


def page(
    key: Sequence[str], rows: Sequence[JsonObject], after: str | None, limit: int
) -> tuple[list[JsonObject], str | None]:
    """At most `limit` rows after the key `after`, and `after` for the next page (None at the end). Raises BadParams."""
    rest = list(rows)
    if after is not None:
        behind = _parsed(after, [int if each in NUMBERS else str for each in key])
        rest = [row for row in rest if key_of(row, key) > behind]
    some = rest[:limit]
    while some and len(rest) > len(some) and key_of(rest[len(some)], key) == key_of(some[-1], key):
        some.append(rest[len(some)])  # a partition also read by an attached application has two rows
    return some, "/".join(map(str, key_of(some[-1], key))) if some and len(rest) > len(some) else None


def _parsed(after: str, types: Sequence[type]) -> tuple[Any, ...]:
    texts = after.rsplit("/", len(types) - 1)
    try:
        if len(texts) != len(types):
            raise ValueError
        return tuple(kind(text) for kind, text in zip(types, texts, strict=True))
    except ValueError:
        raise BadParams("after: not the `next` of a former page") from None
