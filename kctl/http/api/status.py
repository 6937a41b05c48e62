"""The routes `/api/v1/status`, `/api/v1/advice` and `/api/v1/events`."""

from functools import partial
from typing import Annotated

from fastapi import Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from kctl.http.api import answers
from kctl.http.api.api import api_of
from kctl.http.api.listing import IfNoneMatch, Local, OfHost, router
from kctl.http.api.partitions import lag_of
from kctl.http.errors import Error
from kctl.rows.advice import Answer
from kctl_agent.errors import NotReady
from kctl_agent.replies.encode import encoded


@router.get("/status", summary="The fleet at a glance, with the verdict on it")
async def status(
    request: Request, local: Local = False, host: OfHost = None, if_none_match: IfNoneMatch = None
) -> Response:
    """Returns the status. If a fleet has several hosts, the verdict, workers and partition states cover all of them."""
    api = api_of(request)
    snapshot, source = api.latest(), api.source
    question = api.asked(is_live=False, is_local=local, host=host)
    if question is None and (same := api.unchanged(snapshot, if_none_match)):
        return same
    named = {"fleet": source.fleet, "table_uri": source.table_uri or None}
    body = named | answers.status_of(snapshot, source.verdicts, source.feed.last_number)
    if question is None:
        return api.answer(snapshot, body)
    joined, _ = await api.shared(("status", host), partial(api.status, question))
    (_, rows), _ = await api.shared(("lag", host), partial(lag_of, api, snapshot, question))
    body |= joined | answers.joined_group(rows, joined["verdict"])
    return api.answer(snapshot, {**body, "workers": api.with_hosts(joined["workers"])}, is_live=True)


@router.get(
    "/advice",
    summary="How many workers and sinkers the fleet needs, and why",
    responses={503: {"model": Error, "description": "The advice is unknown; an autoscaler keeps the current number"}},
)
async def advice(request: Request, if_none_match: IfNoneMatch = None) -> Response:
    """Returns the answer of `kctl advise`, for autoscalers."""
    api = api_of(request)
    snapshot = api.latest()
    if snapshot.advice.answer is Answer.UNKNOWN:
        raise NotReady(snapshot.advice.reason)
    return api.unchanged(snapshot, if_none_match) or api.answer(snapshot, encoded(snapshot.advice))


@router.get(
    "/events",
    summary="What happens, as server-sent events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(
    request: Request,
    recent: Annotated[int, Query(ge=0, le=500, description="Begin with this many of the last events.")] = 0,
    last_event_id: Annotated[str | None, Header()] = None,
) -> StreamingResponse:
    """Streams events. `event: happened` carries one event as JSON, and `event: collected` announces a new snapshot. A
    client that sends `Last-Event-ID` gets all later events that are among the last 500."""
    lines = api_of(request).streams.begin(last_event_id, recent)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(lines, media_type="text/event-stream", headers=headers)
