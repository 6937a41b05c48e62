"""What every list of the API does with its rows: read, filtered, paged, answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from fastapi import Request, Response

from kctl.http.api.api import Api, api_of
from kctl.http.api.filters import chosen
from kctl.http.api.paging import page
from kctl.http.api.parameters import ListParams
from kctl.master.snapshot import FleetSnapshot
from kctl_agent.rpc.wire import JsonObject

__all__ = ["Read", "listed"]

Rows: TypeAlias = list[JsonObject]
Read: TypeAlias = Callable[[Api, FleetSnapshot], Awaitable[tuple[JsonObject, Rows]]]
"""What stands beside the rows, as how complete and how old they are; and the rows, sorted as they are paged."""


def _as_they_are(_api: Api, _head: JsonObject, rows: Rows) -> Rows:
    return rows


async def listed(
    request: Request,
    resource: str,
    read: Read,
    lists: ListParams,
    after: str | None,
    if_none_match: str | None,
    filters: Mapping[str, Any],
    *,
    field: str = "rows",
    completed: Callable[[Api, JsonObject, Rows], Rows] = _as_they_are,
) -> Response:
    """The page of a list; `field` is the name of its rows. `completed` adds to the rows of the page what those that are
    not shown need not have, given what stands beside them."""
    api = api_of(request)
    snapshot = api.latest()
    if not lists.live and (same := api.unchanged(snapshot, if_none_match)):
        return same
    head, rows = await read(api, snapshot)
    wanted = chosen(rows, **filters)
    some, following = page(resource, wanted, after, lists.limit)
    body = {**head, field: completed(api, head, some), "matching": len(wanted), "next": following}
    return api.answer(snapshot, body, is_live=lists.live)
