"""The application: probes, metrics, API, documentation and the page, behind the guard."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from kctl import __version__
from kctl.http.access import Access
from kctl.http.errors import RESPONSES, answer_errors_in_one_shape, error_response
from kctl.http.guard import Guard, Limits
from kctl.http.operations import operations_router
from kctl.http.page import Page
from kctl.http.reference import reference_page
from kctl.http.routes import api_router
from kctl.http.source import Source
from kctl.http.stream import Streams
from kctl_agent.errors import NotReady

__all__ = ["App", "create_app"]

_SUMMARY = "Figures of one fleet of Kafka consumer workers."


class App:
    """What is served (`guarded`, an ASGI application), and how it is told to end. Belongs to one event loop."""

    def __init__(self, source: Source, access: Access | None = None, limits: Limits | None = None) -> None:
        self._life = secrets.token_hex(4)
        self._streams = Streams(source, self._life)
        self.routes = _routes(source, self._streams, self._life)
        self.guarded = Guard(self.routes, access or Access(), limits)

    @property
    def refusals(self) -> Counter[str]:
        """Error code to how many requests were refused with it since the start, before any route saw them."""
        return self.guarded.refusals

    def use(self, access: Access) -> None:
        """From now on this counts. With other tokens open streams end: they were let in by those before."""
        if access.tokens != self.guarded.access.tokens:
            self._streams.restart()
        self.guarded.access = access

    def close(self) -> None:
        """Ends the streams that would otherwise go on for ever."""
        self._streams.close()


def create_app(source: Source, access: Access | None = None, limits: Limits | None = None) -> App:
    """The application over `source`. Without `access` it is that of loopback without a token."""
    return App(source, access, limits)


def _routes(source: Source, streams: Streams, life: str) -> FastAPI:
    # The interactive pages that FastAPI offers load their scripts from elsewhere.
    app = FastAPI(
        title="kctl",
        version=__version__,
        summary=_SUMMARY,
        docs_url=None,
        redoc_url=None,
        responses=RESPONSES,
        generate_unique_id_function=lambda route: route.name,
    )
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]  # FastAPI's own way to change it
    page = Page.load("page.html")

    @app.get("/", summary="The page for people", response_class=HTMLResponse)
    async def home() -> Response:
        return page.response()

    @app.get("/docs", summary="This reference as a page", response_class=HTMLResponse)
    async def docs() -> Response:
        return reference_page(app.openapi()).response()

    @app.get("/healthz", summary="The master is alive")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Brokers reached, every desired worker running, no partition at a standstill")
    async def readyz() -> Response:
        """200, or 503 with the reasons in the message."""
        if reasons := source.reasons_not_ready():
            return error_response(NotReady("; ".join(reasons)))
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", summary="All figures for Prometheus", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
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

    app.include_router(api_router(source, streams, life))
    if source.operations is not None:
        app.include_router(operations_router(source.operations))
    answer_errors_in_one_shape(app)
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    """FastAPI's description, without the 422 that it adds to each path: what is wrong with a request is a 400 here."""
    if app.openapi_schema is None:
        described = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        for operations in described["paths"].values():
            for told in operations.values():
                told["responses"].pop("422", None)
        schemas = described["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        app.openapi_schema = described
    return app.openapi_schema
