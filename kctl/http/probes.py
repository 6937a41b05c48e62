"""`/healthz`, `/readyz` and `/metrics`: what Kubernetes and Prometheus ask."""

from __future__ import annotations

import asyncio

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from kctl.http.errors import error_response
from kctl.http.source import Source
from kctl_agent.errors import NotReady

__all__ = ["healthz", "metrics", "readyz"]


async def healthz() -> dict[str, str]:
    return {"status": "ok"}


async def readyz(request: Request) -> Response:
    """200, or 503 with the reasons in the message."""
    if reasons := _source(request).reasons_not_ready():
        return error_response(NotReady("; ".join(reasons)))
    return JSONResponse({"status": "ready"})


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


def _source(request: Request) -> Source:
    source: Source = request.app.state.source
    return source
