"""A list in pages. Pages go on behind the last row's key, so rows that come or go meanwhile move nothing; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kctl_agent.errors import BadParams
from kctl_agent.rpc.wire import JsonObject

__all__ = ["KEYS", "MAX_ROWS", "Key", "page"]

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


def page(
    resource: str, rows: Sequence[JsonObject], after: str | None, limit: int
) -> tuple[list[JsonObject], str | None]:
    """At most `limit` rows behind the key `after`, and what to give as `after` for the next page, None at the end.

    Raises:
        BadParams: `after` is no key of this resource.
    """
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
