"""ASGI middleware that computes once what many open pages ask of one snapshot."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kctl.http.api.api import Api

KEPT_SECONDS: Final = 0.25
"""All pages ask when a new snapshot appears. Ages in an answer are late by up to this."""
Key: TypeAlias = tuple[str, bytes]
KEPT_BYTES: Final = 8 * 1024 * 1024
_PATHS: Final = frozenset(f"/api/v1/{name}" for name in ("history", "lag", "status", "workers"))


class KeptAnswers:
    """Shares answers between callers. Belongs to one event loop. All callers that pass the guard get the same
    answers."""

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
        """The whole answer, so that a caller that reads slowly or leaves does not affect others."""
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
