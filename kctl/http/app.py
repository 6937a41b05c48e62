"""The routes. Each reads the last snapshot and asks nobody, so it answers at once whatever the brokers do."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from kctl import __version__
from kctl.master.snapshot import FleetSnapshot

__all__ = ["create_app"]

log = logging.getLogger(__name__)


def create_app(
    latest: Callable[[], FleetSnapshot | None],
    render_metrics: Callable[[str, str], tuple[bytes, str, bool]],
    clock: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The application over `latest`, the last snapshot (None before the first).

    `render_metrics` turns a scraper's Accept and Accept-Encoding headers into body, content type and whether the body
    is gzipped. `clock` is the snapshots' clock.
    """
    app = FastAPI(title="kctl", version=__version__, summary="Figures of one fleet of Kafka consumer workers.")

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The master is alive."""
        return {"status": "ok"}

    @app.get("/metrics", response_class=Response)
    def metrics(request: Request) -> Response:  # not async: rendering many series takes its time, on a thread
        """All figures for Prometheus."""
        wants = request.headers.get("accept", ""), request.headers.get("accept-encoding", "")
        body, content_type, is_gzipped = render_metrics(*wants)
        return Response(
            body,
            media_type=content_type,
            headers={"vary": "accept, accept-encoding", **({"content-encoding": "gzip"} if is_gzipped else {})},
        )

    @app.get("/api/v1/lag")
    async def lag() -> dict[str, Any]:
        """Total lag, lag per topic, and every partition; a figure that is not known is null."""
        snapshot = latest()
        if snapshot is None:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "the first collection is not finished yet")
        return _lag(snapshot, clock() - snapshot.taken_at)

    _answer_errors_in_one_shape(app)
    return app


def _lag(snapshot: FleetSnapshot, age_seconds: float) -> dict[str, Any]:
    total, offsets = snapshot.commands["kafka_lag"], snapshot.commands["offset_checker"]
    return {
        "cluster": snapshot.cluster,
        "group": snapshot.group,
        **total.result,
        "rows": [{**row, "age_seconds": row["age_seconds"] + age_seconds} for row in offsets.result["rows"]],
        "age_seconds": age_seconds,
        **offsets.completeness(),
    }


_CODES = {
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.SERVICE_UNAVAILABLE: "not_ready",
}


def _answer_errors_in_one_shape(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    async def known(_request: Request, error: HTTPException) -> JSONResponse:
        code = _CODES.get(HTTPStatus(error.status_code), "failed")
        return _error(error.status_code, code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        where = "; ".join(f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
        return _error(HTTPStatus.BAD_REQUEST, "bad_params", where)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        # The route's pattern, not the path: nothing that came in goes into a log.
        log.error("action=http_failed route=%s", getattr(request.scope.get("route"), "path", "-"), exc_info=error)
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "the master could not answer; its log says why")


def _error(status: int, code: str, message: str, headers: Any = None) -> JSONResponse:
    retriable = status == HTTPStatus.SERVICE_UNAVAILABLE
    body = {"error": {"code": code, "message": message, "retriable": retriable}}
    return JSONResponse(body, status_code=status, headers=headers)
