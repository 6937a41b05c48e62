"""Router, parameters and paging that the API's lists share."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Header, Query, Request, Response

from kctl.http.api.api import Api, api_of
from kctl.http.api.paging import MAX_ROWS, Key, chosen, page
from kctl.http.errors import Error, known_parameters
from kctl.master.snapshot import FleetSnapshot
from kctl_agent.rpc.wire import JsonObject

router = APIRouter(
    prefix="/api/v1",
    responses={404: {"model": Error, "description": "The name does not exist"}},
    dependencies=[Depends(known_parameters)],
)
Rows: TypeAlias = list[JsonObject]
Read: TypeAlias = Callable[[Api, FleetSnapshot, JsonObject | None], Coroutine[Any, Any, tuple[JsonObject, Rows]]]
"""Answers a question, or None from the snapshot. Returns the fields besides the rows, and the sorted rows."""

Local = Annotated[bool, Query(description="Only this host, if the fleet runs on several.")]
OfHost = Annotated[str | None, Query(max_length=64, description="Only this host of the fleet.")]


@dataclass(frozen=True, slots=True)
class ListParams:
    live: Annotated[bool, Query(description="Ask the agents now, for at most two seconds.")] = False
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="The maximum number of rows.")] = 1000
    local: Local = False
    host: OfHost = None


def after_of(key: Key) -> Any:
    """Declares the parameter `after` for lists sorted by `key`."""
    text = "Rows after this one: `next` of the previous page."
    return Query(max_length=1000, pattern=key.pattern, description=text)


Lists = Annotated[ListParams, Depends()]
IfNoneMatch = Annotated[str | None, Header()]
Strings = Annotated[list[str] | None, Query(max_length=100)]
Numbers = Annotated[list[int] | None, Query(max_length=1000)]


async def listed(
    request: Request,
    resource: str,
    key: Key,
    read: Read,
    lists: ListParams,
    after: str | None,
    if_none_match: str | None,
    filters: Mapping[str, Any],
    *,
    field: str = "rows",
    completed: Callable[[Api, JsonObject, Rows], Rows] = lambda _api, _head, rows: rows,
) -> Response:
    """Returns one page of a list, with the rows in `field`. `completed` adds fields to the rows of this page only."""
    api = api_of(request)
    snapshot = api.latest()
    question = api.asked(is_live=lists.live, is_local=lists.local, host=lists.host)
    if question is None and (same := api.unchanged(snapshot, if_none_match)):
        return same
    if question is None or lists.live:
        head, rows = await read(api, snapshot, question)
        seconds = 0.0
    else:
        (head, rows), seconds = await api.shared((resource, lists.host), partial(read, api, snapshot, question))
    wanted = chosen(rows, **filters)
    some, following = page(key, wanted, after, lists.limit)
    head, some = older(head, seconds), [older(row, seconds) for row in completed(api, head, some)]
    body = {**head, field: api.with_hosts(some), "matching": len(wanted), "next": following}
    return api.answer(snapshot, body, is_live=question is not None)


def older(row: JsonObject, seconds: float) -> JsonObject:
    age = row.get("age_seconds")
    return {**row, "age_seconds": age + seconds} if seconds and age is not None else row
