"""`/healthz`, `/readyz` and `/metrics`: what Kubernetes and Prometheus ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from kctl.http.errors import error_response
from kctl.http.guard import OTHER_KEY
from kctl_agent.errors import NotReady
from kctl_agent.rpc.wire import JsonObject


class ProbeSource(Protocol):
    """What these answer from, `app.state.source`."""

    @property
    def render_metrics(self) -> Callable[[str, str], tuple[bytes, str, bool]]:
        """From a scraper's Accept and Accept-Encoding headers to body, content type and whether the body is gzipped."""

    @property
    def ready_metrics(self) -> Callable[[str, str], tuple[bytes, str, bool] | None]:
        """The same at once, or None where it must be made first."""

    def ready(self) -> JsonObject:
        """The answer to `/readyz`. Raises NotReady with the reason."""


async def healthz() -> dict[str, str]:
    return {"status": "ok"}


async def readyz(request: Request) -> Response:
    """200, or 503 with the reason in the message."""
    is_other = OTHER_KEY in request.scope  # the reason may quote errors
    try:
        body = _source(request).ready()
    except NotReady as error:
        return error_response(NotReady("the reason is for the fleet's user, root, and tokens") if is_other else error)
    return JSONResponse({"status": body["status"]} if is_other else body)


async def metrics(request: Request) -> Response:
    source = _source(request)
    wants = request.headers.get("accept", ""), request.headers.get("accept-encoding", "")
    made = source.ready_metrics(*wants)
    if made is None:  # rendering many series takes its time
        made = await asyncio.to_thread(source.render_metrics, *wants)
    body, content_type, is_gzipped = made
    return Response(
        body,
        media_type=content_type,
        headers={"vary": "accept, accept-encoding", **({"content-encoding": "gzip"} if is_gzipped else {})},
    )


def _source(request: Request) -> ProbeSource:
    source: ProbeSource = request.app.state.source
    return source
