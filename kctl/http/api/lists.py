"""`/api/v1/storage`, `members`, `brokers`, `topics`, `workers`: the result of one command each."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response

from kctl.http.api.answers import COMMANDS, FIELDS, live_head, result_of
from kctl.http.api.api import Api, api_of
from kctl.http.api.listing import (
    AfterName,
    AfterNode,
    AfterPartition,
    IfNoneMatch,
    ListParams,
    Lists,
    Local,
    OfHost,
    Rows,
    Strings,
    listed,
    router,
)
from kctl.http.api.paging import KEYS
from kctl.master.snapshot import FleetSnapshot
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.wire import JsonObject


@router.get("/storage", summary="Messages and bytes in the storage, and its limit")
async def storage(
    request: Request,
    live: Annotated[bool, Query(description="Ask the agents now.")] = False,
    local: Local = False,
    host: OfHost = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    api = api_of(request)
    snapshot, question = api.latest(), api.asked(is_live=live, is_local=local, host=host)
    if question is None and (same := api.unchanged(snapshot, if_none_match)):
        return same
    body = await _result(api, "storage", snapshot, question)
    return api.answer(snapshot, body, is_live=question is not None)


@router.get("/members", summary="The members of the group, as they see themselves, and their leader")
async def members(
    request: Request,
    lists: Lists,
    after: AfterName = None,
    worker: Strings = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    return await _listed(request, "members", lists, after, if_none_match, worker=worker)


@router.get("/brokers", summary="The brokers of the cluster")
async def brokers(
    request: Request, lists: Lists, after: AfterNode = None, if_none_match: IfNoneMatch = None
) -> Response:
    return await _listed(request, "brokers", lists, after, if_none_match)


@router.get("/topics", summary="Leader and replicas of each partition")
async def topics(
    request: Request,
    lists: Lists,
    after: AfterPartition = None,
    topic: Strings = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    return await _listed(request, "topics", lists, after, if_none_match, topic=topic)


@router.get("/workers", summary="Workers and sinkers, as they and as their supervisor see them")
async def workers(
    request: Request,
    lists: Lists,
    after: AfterName = None,
    worker: Strings = None,
    kind: Strings = None,
    state: Strings = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    return await _listed(request, "workers", lists, after, if_none_match, name=worker, kind=kind, state=state)


async def _listed(
    request: Request,
    resource: str,
    lists: ListParams,
    after: str | None,
    if_none_match: str | None,
    **filters: Any,
) -> Response:
    async def read(api: Api, snapshot: FleetSnapshot, question: JsonObject | None) -> tuple[JsonObject, Rows]:
        result = await _result(api, resource, snapshot, question)
        return result, sorted(result[FIELDS[resource]], key=KEYS[resource][0])

    return await listed(request, resource, read, lists, after, if_none_match, filters, field=FIELDS[resource])


async def _result(api: Api, resource: str, snapshot: FleetSnapshot, question: JsonObject | None) -> JsonObject:
    """The result of the resource's command, how complete and how old it is."""
    if question is not None:
        reduced = await api.ask(COMMANDS[resource], question)
        return {**encoded(reduced.result), **live_head(reduced)}
    return {**result_of(resource, snapshot), "age_seconds": api.age_seconds(snapshot)}
