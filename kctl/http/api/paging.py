"""The rows of a list that are wanted, in pages; pure.

Pages go on behind the last row's key, so rows that come or go meanwhile move nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kctl_agent.errors import BadParams
from kctl_agent.rpc.wire import JsonObject

MAX_ROWS = 10_000
Key: TypeAlias = Callable[[Mapping[str, Any]], tuple[Any, ...]]


def _partition(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["topic"], row["partition"]


KEYS: Mapping[str, tuple[Key, tuple[type, ...]]] = {
    "lag": (_partition, (str, int)),
    "offsets": (_partition, (str, int)),
    "topics": (_partition, (str, int)),
    "members": (lambda row: (row["worker"],), (str,)),
    "brokers": (lambda row: (row["node_id"],), (int,)),
    "workers": (lambda row: (row["name"],), (str,)),
}
"""Resource to the key by which its rows are sorted, and the types of the key's parts."""


def chosen(rows: list[JsonObject], min_lag: int | None = None, **wanted: Any) -> list[JsonObject]:
    """The rows whose fields have one of the wanted values; None wants all."""
    filters: list[tuple[str, Callable[[Any], bool]]] = [
        (name, frozenset(values).__contains__) for name, values in wanted.items() if values is not None
    ]
    if min_lag is not None:
        filters.append(("remaining_count", lambda lag: lag is not None and lag >= min_lag))
    return [row for row in rows if all(passes(row.get(name)) for name, passes in filters)] if filters else rows


def page(
    resource: str, rows: Sequence[JsonObject], after: str | None, limit: int
) -> tuple[list[JsonObject], str | None]:
    """At most `limit` rows behind the key `after`, and what to give as `after` for the next page, None at the end.
    Raises BadParams: `after` is no key of this resource."""
    key, types = KEYS[resource]
    rest = list(rows)
    if after is not None:
        behind = _parsed(after, types)
        rest = [row for row in rest if key(row) > behind]
    some = rest[:limit]
    while some and len(rest) > len(some) and key(rest[len(some)]) == key(some[-1]):
        some.append(rest[len(some)])  # a partition that an attached application reads too has two rows
    return some, "/".join(map(str, key(some[-1]))) if some and len(rest) > len(some) else None


def _parsed(after: str, types: tuple[type, ...]) -> tuple[Any, ...]:
    texts = after.rsplit("/", len(types) - 1)
    try:
        if len(texts) != len(types):
            raise ValueError
        return tuple(kind(text) for kind, text in zip(types, texts, strict=True))
    except ValueError:
        raise BadParams("after: not the `next` of a former page") from None
