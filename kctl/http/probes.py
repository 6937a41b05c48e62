"""`/healthz`, `/readyz` and `/metrics`, for Kubernetes and Prometheus. `app.state.source` is a `SnapshotSource` or a
`GroupsSource`."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from kctl.http.errors import error_response
from kctl.http.guard import OTHER_KEY
from kctl_agent.errors import NotReady


async def healthz() -> dict[str, str]:
    return {"status": "ok"}


async def readyz(request: Request) -> Response:
    """200, or 503 with the reason."""
    is_other = OTHER_KEY in request.scope  # the reason may quote errors
    try:
        body = request.app.state.source.ready()
    except NotReady as error:
        return error_response(NotReady("the reason is for the fleet's user, root, and tokens") if is_other else error)
    return JSONResponse({"status": body["status"]} if is_other else body)


async def metrics(request: Request) -> Response:
    wants = request.headers.get("accept", ""), request.headers.get("accept-encoding", "")
    body, content_type, is_gzipped = await request.app.state.source.metrics(*wants)
    headers = {"vary": "accept, accept-encoding"} | ({"content-encoding": "gzip"} if is_gzipped else {})
    return Response(body, media_type=content_type, headers=headers)
