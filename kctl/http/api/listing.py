"""What the lists of the API have in common: their router, their parameters, and what is done with their rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from kctl.http.api.api import Api, api_of
from kctl.http.api.paging import MAX_ROWS, chosen, page
from kctl.master.snapshot import FleetSnapshot
from kctl_agent.rpc.wire import JsonObject

router = APIRouter(prefix="/api/v1")
Rows: TypeAlias = list[JsonObject]
Read: TypeAlias = Callable[[Api, FleetSnapshot], Awaitable[tuple[JsonObject, Rows]]]
"""What stands beside the rows, as how complete and how old they are; and the rows, sorted as they are paged."""


class ListParams:
    """The parameters that every list takes."""

    def __init__(
        self,
        live: Annotated[bool, Query(description="Ask the agents now, for at most two seconds.")] = False,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="The most rows.")] = 1000,
    ) -> None:
        self.live, self.limit = live, limit


def _after(pattern: str) -> Any:
    return Query(max_length=300, pattern=pattern, description="Rows behind this one: `next` of the page before.")


Lists = Annotated[ListParams, Depends()]
AfterPartition = Annotated[str | None, _after(r"^[A-Za-z0-9._-]{1,249}/[0-9]{1,9}$")]
AfterNode = Annotated[str | None, _after(r"^[0-9]{1,9}$")]
AfterName = Annotated[str | None, _after(r"^[A-Za-z0-9._-]{1,64}$")]
IfNoneMatch = Annotated[str | None, Header()]
Strings = Annotated[list[str] | None, Query(max_length=100)]
Numbers = Annotated[list[int] | None, Query(max_length=1000)]


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
