"""Errors of HTTP. Every error has the form `{"error": {"code", "message", "retriable"}}`."""

from collections.abc import Callable, Coroutine, Mapping
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from kctl.errors import KctlError
from kctl_agent.errors import AgentError, BadParams, BadPayload, BadRequest, UnknownMethod
from kctl_agent.rpc.messages import printable_name
from kctl_agent.rpc.wire import JsonObject, parse_object

_MEDIA_TYPE = "application/json"


class HttpError(KctlError, code="http_error", http_status=400):
    """The request was rejected for a reason that has no code of its own (docs/http.md)."""


class Unauthorized(HttpError, code="unauthorized", http_status=401):
    """The token is missing or wrong."""


class NotAllowed(HttpError, code="not_allowed", http_status=403):
    """The request comes from another site's page, or has a foreign host name and no token. Or it needs a token of
    `http.token_file`, and this setting is empty, or the caller's token may only read."""


class RequestTooSlow(HttpError, code="request_too_slow", retriable=True, http_status=408):
    """The request was not complete in time."""


class BodyTooLarge(HttpError, code="body_too_large", http_status=413):
    """The body is larger than any request needs."""


class UnsupportedMediaType(HttpError, code="unsupported_media_type", http_status=415):
    """The body is not JSON. Send `Content-Type: application/json`."""


class HeadersTooLarge(HttpError, code="headers_too_large", http_status=431):
    """The request line and headers are larger than any request needs."""


_CODES = {HTTPStatus.NOT_FOUND: "not_found", HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed"}


class Reason(BaseModel):
    code: str
    message: str
    retriable: bool


class Error(BaseModel):
    """The form of every error."""

    error: Reason


RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": Error, "description": "A parameter is invalid"},
    401: {"model": Error, "description": "A token is needed"},
    403: {"model": Error, "description": "The request is from another origin, or for a foreign host name"},
    431: {"model": Error, "description": "Too large"},
    503: {"model": Error, "description": "No snapshot yet, or too many requests at a time"},
}
"""The errors that any path may answer."""


def error_body(code: str, message: str, retriable: bool) -> JsonObject:
    return {"error": {"code": code, "message": message, "retriable": retriable}}


def error_response(error: KctlError | AgentError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Makes the response to an error. An agent's error has status 400 if the caller can correct it, otherwise 503."""
    if isinstance(error, KctlError):
        status = error.http_status
    else:
        is_the_callers = isinstance(error, BadParams | BadRequest | UnknownMethod)
        status = HTTPStatus.BAD_REQUEST if is_the_callers else HTTPStatus.SERVICE_UNAVAILABLE
    return _response(status, error.code, str(error), error.retriable, headers)


def answer_errors_in_one_shape(app: FastAPI) -> None:
    """Makes all routes answer errors in the form `Error`."""
    # The handlers log nothing, because errors may quote a request.

    @app.exception_handler(KctlError)
    @app.exception_handler(AgentError)
    async def refused(_request: Request, error: KctlError | AgentError) -> JSONResponse:
        return error_response(error)

    @app.exception_handler(HTTPException)
    async def known(_request: Request, error: HTTPException) -> JSONResponse:
        code = _CODES.get(HTTPStatus(error.status_code), HttpError.code)
        return _response(error.status_code, code, str(error.detail), False, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        where = "; ".join(f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
        return _response(HTTPStatus.BAD_REQUEST, BadParams.code, where, False)

    @app.exception_handler(Exception)
    async def unexpected(_request: Request, _error: Exception) -> JSONResponse:
        return internal_error()  # Starlette re-raises it, and the guard logs it


async def known_parameters(request: Request) -> None:
    """Rejects query parameters that the route does not have. Raises BadParams."""
    known = _query_parameters(request.scope["route"].dependant)
    for name in request.query_params.keys() - known:
        near = "".join(f"; the nearest is {each}" for each in get_close_matches(name, known, n=1))
        raise BadParams(f"query.{printable_name(name)}: the parameter does not exist{near}")


def _query_parameters(dependant: Dependant) -> list[str]:
    own = [each.alias for each in dependant.query_params]
    return own + [name for each in dependant.dependencies for name in _query_parameters(each)]


def internal_error(headers: Mapping[str, str] | None = None) -> JSONResponse:
    message = "the master could not answer; its log has the reason"
    return _response(HTTPStatus.INTERNAL_SERVER_ERROR, AgentError.code, message, False, headers)


def _response(
    status: int, code: str, message: str, retriable: bool, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(error_body(code, message, retriable), status_code=status, headers=dict(headers or {}))


class JsonRoute(APIRoute):
    """A route whose body must be one JSON object."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if self.body_field is None:
                return await answer(request)
            # FastAPI's `json.loads` accepts NaN and Infinity, and FastAPI takes a body without content type for text.
            strict = _StrictRequest(request.scope, request.receive)
            await strict.json()  # here, because FastAPI replaces errors raised inside
            return await answer(strict)

        return checked


class _StrictRequest(Request):
    _object: JsonObject | None = None

    async def json(self) -> JsonObject:
        if self._object is None:
            given = self.headers.get("content-type", "").partition(";")[0].strip().lower()
            if given != _MEDIA_TYPE:
                raise UnsupportedMediaType(f"the body must be JSON: send `Content-Type: {_MEDIA_TYPE}`")
            try:
                self._object = parse_object(await self.body())
            except BadPayload:
                raise BadParams("body: not one JSON object (NaN, Infinity and 1e999 are not JSON)") from None
        return self._object
