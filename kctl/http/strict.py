"""Bodies of requests: JSON with its content type, and as strict as the wire's."""

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
    """A route whose body is one JSON object. FastAPI itself reads it by `json.loads`, which lets NaN and Infinity pass,
    and takes a body without a content type for a text."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if self.body_field is None:
                return await answer(request)
            strict = _StrictRequest(request.scope, request.receive)
            await strict.json()  # here, for whatever is raised inside becomes FastAPI's own error
            return await answer(strict)

        return checked


class _StrictRequest(Request):
    _object: JsonObject | None = None

    async def json(self) -> JsonObject:
        """The body of a request, which is one JSON object. Raises UnsupportedMediaType: the content type of the body is
        not JSON; BadParams: it is not, or not one object, or holds a NaN or an Infinity."""
        if self._object is None:
            given = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if given != _MEDIA_TYPE:
                raise UnsupportedMediaType(f"the body must be JSON: send `Content-Type: {_MEDIA_TYPE}`")
            try:
                self._object = parse_object(await self.body())
            except BadPayload:
                raise BadParams("body: not one JSON object (NaN, Infinity and 1e999 are no JSON)") from None
        return self._object
