"""Reads request bodies: JSON with its content type, as strictly as on the wire."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from kctl.http.errors import UnsupportedMediaType
from kctl_agent.errors import BadParams, BadPayload
from kctl_agent.rpc.wire import JsonObject, parse_object

_MEDIA_TYPE = "application/json"


class JsonRoute(APIRoute):
    """A route whose body is one JSON object. FastAPI's `json.loads` accepts NaN and Infinity, and takes a body without
    content type for text."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if self.body_field is None:
                return await answer(request)
            strict = _StrictRequest(request.scope, request.receive)
            await strict.json()  # here, because FastAPI replaces errors raised inside
            return await answer(strict)

        return checked


class _StrictRequest(Request):
    _object: JsonObject | None = None

    async def json(self) -> JsonObject:
        """Reads the body. Raises UnsupportedMediaType, BadParams."""
        if self._object is None:
            given = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if given != _MEDIA_TYPE:
                raise UnsupportedMediaType(f"the body must be JSON: send `Content-Type: {_MEDIA_TYPE}`")
            try:
                self._object = parse_object(await self.body())
            except BadPayload:
                raise BadParams("body: not one JSON object (NaN, Infinity and 1e999 are no JSON)") from None
        return self._object
