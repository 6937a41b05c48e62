"""The HTTP application of a fleet: probes, metrics, API, documentation and web page. A guard checks every request."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kctl import __version__
from kctl.http import api, groups_api
from kctl.http.access import AccessRights
from kctl.http.api import dead_letters, hosts, operations
from kctl.http.api.api import Api, Streams
from kctl.http.errors import RESPONSES, answer_errors_in_one_shape
from kctl.http.guard import Guard
from kctl.http.pages import asset, docs, healthz, home, metrics, readyz
from kctl.http.server import App
from kctl.http.source import SnapshotSource

KEPT_SECONDS: Final = 0.25
"""How long an answer is shared, because all pages ask when a new snapshot appears. Its ages are late by up to this."""
Key: TypeAlias = tuple[str, bytes]
KEPT_BYTES: Final = 8 * 1024 * 1024
_PATHS: Final = frozenset(f"/api/v1/{name}" for name in ("history", "lag", "status", "workers"))


class KeptAnswers:
    """Shares one answer between equal requests for `_PATHS`, even from different callers. Belongs to one event loop."""

    def __init__(self, app: ASGIApp, api: Api) -> None:
        self._app = app
        self._api = api
        self._tag: bytes | None = None
        self._bytes = 0
        self._answers: dict[Key, asyncio.Future[list[Message]]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = scope.get("path", ""), scope.get("query_string", b"")
        tag = self._api.current_tag() if key[0] in _PATHS and scope.get("method") == "GET" else None
        if tag is None or b"live" in key[1] or (b"if-none-match", tag) in scope["headers"]:
            await self._app(scope, receive, send)
            return
        if tag != self._tag:
            self._forget()
            self._tag = tag
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = asyncio.ensure_future(self._recorded(scope, receive))
            answer.add_done_callback(partial(self._keep, key))
        for message in await asyncio.shield(answer):
            await send({**message})  # a copy: the receiver changes it

    async def _recorded(self, scope: Scope, receive: Receive) -> list[Message]:
        answer: list[Message] = []

        async def record(message: Message) -> None:
            answer.append(message)

        await self._app(scope, receive, record)
        return answer

    def _keep(self, key: Key, done: asyncio.Future[list[Message]]) -> None:
        messages = [] if done.cancelled() or done.exception() is not None else done.result()
        size = sum(len(message.get("body", b"")) for message in messages)
        if self._answers.get(key) is not done:
            return
        if not messages or messages[0]["status"] != 200 or self._bytes + size > KEPT_BYTES:
            del self._answers[key]
            return
        if not self._bytes:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget)
        self._bytes += size

    def _forget(self) -> None:
        self._answers.clear()
        self._bytes = 0


def create_app(source: SnapshotSource, access: AccessRights | None = None, refusals: Counter[str] | None = None) -> App:
    """Makes the application, which belongs to one event loop. `access` defaults to loopback without a token. `refusals`
    counts rejected requests by error code."""
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
        summary="Stats of one fleet of Kafka consumer workers.",
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
    app.get("/readyz", summary="Whether the fleet does its work: 503 while the verdict is failing or unknown")(readyz)
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
    if app.openapi_schema is None:
        described = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        for methods in described["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)  # invalid requests get 400 here
        schemas = described["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        app.openapi_schema = described
    return app.openapi_schema
