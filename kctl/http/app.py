"""The application of a fleet: probes, metrics, API, documentation and the page, behind the guard."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, PlainTextResponse

from kctl import __version__
from kctl.http import api, groups_api
from kctl.http.access import AccessRights
from kctl.http.api import dead_letters, hosts, operations
from kctl.http.api.api import Api
from kctl.http.api.kept import KeptAnswers
from kctl.http.api.streams import Streams
from kctl.http.errors import RESPONSES, answer_errors_in_one_shape
from kctl.http.guard import Guard
from kctl.http.pages import asset, docs, home
from kctl.http.probes import healthz, metrics, readyz
from kctl.http.server import App
from kctl.http.source import SnapshotSource

_SUMMARY = "Stats of one fleet of Kafka consumer workers."


def create_app(source: SnapshotSource, access: AccessRights | None = None, refusals: Counter[str] | None = None) -> App:
    """Belongs to one event loop. `access` defaults to loopback without a token; `refusals` counts rejected requests by
    error code."""
    life = secrets.token_hex(4)
    streams = Streams(source, life)

    def close() -> None:
        streams.close()
        if source.dead_letters is not None:
            source.dead_letters.close()

    answers = Api(source, streams, life)
    guarded = Guard(KeptAnswers(_routes(source, answers), answers), access or AccessRights(), refusals)
    return App(guarded, streams.restart, close)


def _routes(source: SnapshotSource, answers: Api) -> FastAPI:
    # FastAPI's interactive pages load their scripts from other sites.
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
    app.state.source, app.state.api = source, answers
    app.state.serves = lambda: " ".join(_served(source))
    app.get("/", summary="The page for people", response_class=HTMLResponse)(home)
    app.get("/assets/{digest}/{name:path}", include_in_schema=False)(asset)
    app.get("/docs", summary="This reference as a page", response_class=HTMLResponse)(docs)
    app.get("/healthz", summary="The master is alive")(healthz)
    app.get("/readyz", summary="The fleet does its work: 503 while its verdict is failing or unknown")(readyz)
    app.get("/metrics", summary="All metrics for Prometheus", response_class=PlainTextResponse)(metrics)
    app.include_router(api.router)
    if source.operations is not None:
        app.include_router(operations.router)
    if source.dead_letters is not None:
        app.include_router(dead_letters.router)
        app.include_router(dead_letters.classes_router)
    if source.hosts is not None:
        app.include_router(hosts.router)
    if source.groups is not None:
        app.state.groups = source.groups
        app.include_router(groups_api.router)
    answer_errors_in_one_shape(app)
    return app


def _served(source: SnapshotSource) -> Iterator[str]:
    yield "fleet"
    if source.groups is not None and source.groups.latest():
        yield "groups"
    if source.hosts is not None:
        yield "hosts"
    if source.dead_letters is not None:
        yield "dead-letters"


def _described(app: FastAPI) -> dict[str, Any]:
    """FastAPI's description without 422 for each path: invalid requests get 400 here."""
    if app.openapi_schema is None:
        described = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        for methods in described["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)
        schemas = described["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        app.openapi_schema = described
    return app.openapi_schema
