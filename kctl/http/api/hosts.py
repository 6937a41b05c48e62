"""`/api/v1/hosts`: lists the hosts, and gives masters of other hosts the replies of this host's agents."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from msgspec import json

from kctl_agent.replies.encode import encoded

router = APIRouter(prefix="/api/v1/hosts")


@router.get("", summary="The hosts of the fleet, and which are silent or gone")
async def hosts(request: Request) -> dict[str, Any]:
    document: dict[str, Any] = encoded(request.app.state.source.hosts.answer())
    return document


@router.get("/replies/{command}", summary="Replies of this host's agents, for the master of another host to reduce")
async def replies(
    command: str,
    request: Request,
    worker: Annotated[str | None, Query(max_length=100)] = None,
    deadline_ms: Annotated[int, Query(ge=1, le=60_000, description="Answer within this time, complete or not.")] = 2000,
) -> Response:
    answer = await request.app.state.source.for_other_host(command, worker, deadline_ms / 1000)
    return Response(json.encode(answer), media_type="application/json")
