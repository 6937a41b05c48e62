"""ASGI middleware that computes once what many open pages ask of one snapshot."""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kctl.http.api.api import Api

KEPT_SECONDS: Final = 0.25
"""All pages ask when a new snapshot appears. Ages in an answer are late by up to this."""
Key: TypeAlias = tuple[str, bytes]
KEPT_BYTES: Final = 8 * 1024 * 1024
_PATHS: Final = frozenset(f"/api/v1/{name}" for name in ("history", "lag", "status", "workers"))


class KeptAnswers:
    """Keeps answers for concurrent callers. Belongs to one event loop. All callers that pass the guard get the same
    answers."""

    def __init__(self, app: ASGIApp, api: Api) -> None:
        self._app = app
        self._api = api
        self._tag: bytes | None = None
        self._bytes = 0
        self._answers: dict[Key, list[Message]] = {}
        self._asked: dict[Key, asyncio.Event] = {}
        """First answers in progress; set when they end, with or without success."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = scope.get("path", ""), scope.get("query_string", b"")
        tag = self._api.current_tag() if key[0] in _PATHS and scope.get("method") == "GET" else None
        if tag is None or b"live" in key[1] or (b"if-none-match", tag) in scope["headers"]:
            await self._app(scope, receive, send)
            return
        if tag != self._tag:
            self._forget()
            self._tag = tag
        await self._answer(key, tag, scope, receive, send)

    async def _answer(self, key: Key, tag: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        """Concurrent callers wait for the first one's answer."""
        if (first := self._asked.get(key)) is not None:
            await first.wait()
        if (answer := self._answers.get(key)) is not None:
            for message in answer:
                await send({**message})  # a copy: the receiver changes it
            return
        self._asked.setdefault(key, asyncio.Event())
        try:
            await self._app(scope, receive, _Recorded(self, key, tag, send))
        finally:
            self._go_on(key)

    def keep(self, key: Key, tag: bytes, answer: list[Message]) -> None:
        """Called before the first caller has received the answer, so that a slow reader does not delay others."""
        self._go_on(key)
        size = sum(len(message.get("body", b"")) for message in answer)
        if answer[0]["status"] != 200 or tag != self._tag or self._bytes + size > KEPT_BYTES:
            return
        if not self._answers:
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._forget)
        self._answers[key] = answer
        self._bytes += size

    def _go_on(self, key: Key) -> None:
        if (asked := self._asked.pop(key, None)) is not None:
            asked.set()

    def _forget(self) -> None:
        self._answers.clear()
        self._bytes = 0


class _Recorded:
    def __init__(self, kept: KeptAnswers, key: Key, tag: bytes, send: Send) -> None:
        self._kept, self._key, self._tag, self._send = kept, key, tag, send
        self._messages: list[Message] = []
        self._unsent: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self._messages.append({**message})
        self._unsent.append(message)
        if message["type"] == "http.response.start":
            return  # a caller that does not read would delay the others
        if not message.get("more_body"):
            self._kept.keep(self._key, self._tag, self._messages)
        while self._unsent:
            await self._send(self._unsent.pop(0))
