"""Filters rows of a list and divides them into pages. Pure.

A page continues after the last row's key, so no row is skipped or repeated if other rows appear or disappear.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_type_hints
from urllib.parse import quote, unquote

from kctl_agent.errors import BadParams
from kctl_agent.rpc.wire import JsonObject

MAX_ROWS = 10_000


class Key(NamedTuple):
    """The fields by which rows are sorted, and their types: `str` or `int`."""

    names: tuple[str, ...]
    types: tuple[type, ...]

    @classmethod
    def of(cls, answer: type, rows: str, names: tuple[str, ...]) -> Key:
        row_type, _ = get_args(get_type_hints(answer)[rows])
        hints = get_type_hints(row_type)
        return cls(names, tuple(hints[name] for name in names))

    @property
    def pattern(self) -> str:
        return f"^{'/'.join('-?[0-9]{1,18}' if kind is int else '.+' for kind in self.types)}$"

    def values(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple([row[each] for each in self.names])

    def text(self, row: Mapping[str, Any]) -> str:
        return "/".join(quote(str(value), safe="") for value in self.values(row))

    def parsed(self, after: str) -> tuple[Any, ...]:
        texts = after.rsplit("/", len(self.types) - 1)
        try:
            return tuple(kind(unquote(text)) for kind, text in zip(self.types, texts, strict=True))
        except ValueError:
            raise BadParams("after: not the `next` of a previous page") from None


def chosen(rows: list[JsonObject], min_lag: int | None = None, **wanted: Any) -> list[JsonObject]:
    """Returns rows whose lag is at least `min_lag` and whose fields have `wanted` values. None disables a filter."""
    filters: list[tuple[str, Callable[[Any], bool]]] = [
        (name, frozenset(values).__contains__) for name, values in wanted.items() if values is not None
    ]
    if min_lag is not None:
        filters.append(("remaining_count", lambda lag: lag is not None and lag >= min_lag))
    return [row for row in rows if all(passes(row.get(name)) for name, passes in filters)] if filters else rows


def page(key: Key, rows: Sequence[JsonObject], after: str | None, limit: int) -> tuple[list[JsonObject], str | None]:
    """Returns up to `limit` rows after the key `after`. Rows with equal keys stay on one page, even beyond `limit`.
    Also returns the next page's `after`, or None at the end. Raises BadParams."""
    rest = list(rows)
    if after is not None:
        behind = key.parsed(after)
        rest = [row for row in rest if key.values(row) > behind]
    some = rest[:limit]
    while some and len(rest) > len(some) and key.values(rest[len(some)]) == key.values(some[-1]):
        some.append(rest[len(some)])  # a partition also read by an attached application has two rows
    return some, key.text(some[-1]) if some and len(rest) > len(some) else None
