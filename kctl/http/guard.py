"""Before any route: who calls, from where, with how much. Everything that is refused is refused here.

ASGI in, ASGI out. What a connection may cost before there is a whole request is `protocol`'s business.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kctl.http.access import Access
from kctl.http.errors import (
    BodyTooLarge,
    HeadersTooLarge,
    HttpError,
    NotAllowed,
    RequestTooSlow,
    TooManyFailures,
    Unauthorized,
    error_response,
)

__all__ = ["Guard", "Limits"]

log = logging.getLogger(__name__)

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_Shown: TypeAlias = Literal["none", "wrong", "right"]

_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
)
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="kctl", Basic realm="kctl"'}
"""Basic, with any name and the token as the password, is what a browser can ask a person for. It is good for reading
only: a browser sends it along by itself, whoever made the page."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request, and wrong tokens, may take."""

    header_bytes: int = 16 * 1024
    body_bytes: int = 64 * 1024
    body_seconds: float = 10.0
    failures: int = 20
    failure_seconds: float = 60.0
    """More than `failures` wrong tokens within so long are refused unseen."""


class Guard:
    """Belongs to one event loop."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._access = access
        self._limits = limits or Limits()
        self._clock = clock
        self._failures: deque[float] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                own = list(message.get("headers", ()))
                has_policy = any(name == b"content-security-policy" for name, _ in own)
                message["headers"] = [*own, *(_HEADERS[:-1] if has_policy else _HEADERS)]
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, self._bounded(receive), sending)
        except HttpError as error:
            if has_begun:
                raise
            headers = {"connection": "close"}  # whatever of its body is still to come is not read
            if isinstance(error, Unauthorized):
                headers |= _CHALLENGE
            if isinstance(error, TooManyFailures):
                headers["retry-after"] = str(int(self._limits.failure_seconds))
            await error_response(error, headers)(scope, receive, sending)

    def _check(self, scope: Scope) -> None:
        headers = _headers(scope)
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if size + sum(len(name) + len(value) for name, value in scope["headers"]) > self._limits.header_bytes:
            raise HeadersTooLarge(f"request line and headers are larger than {self._limits.header_bytes} bytes")
        changes = scope["method"] not in _SAFE
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise NotAllowed("pages of another origin are not served")
        shown = self._shown(headers.get("authorization"), changes)
        if shown != "right":
            self._check_without_token(shown, host, changes)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._limits.body_bytes:
            raise BodyTooLarge(f"a body may have {self._limits.body_bytes} bytes")

    def _check_without_token(self, shown: _Shown, host: str, changes: bool) -> None:
        if changes and self._access.token is None:
            raise NotAllowed("this changes something and needs a token, but none is configured: set http.token_file")
        if shown == "wrong":
            self._count_failure()
            raise Unauthorized("the token is not the right one")
        if changes or not self._access.is_loopback:
            raise Unauthorized("a token is needed: send `Authorization: Bearer …`")
        name = _host_name(host)
        if name not in _LOOPBACK and name not in self._access.hosts and not name.startswith("127."):
            raise NotAllowed("without a token this server is called localhost: add other names to http.allowed_hosts")

    def _shown(self, authorization: str | None, changes: bool) -> _Shown:
        if authorization is None or self._access.token is None:
            return "none"
        scheme, _, value = authorization.partition(" ")
        given = value.strip()
        if scheme.lower() == "basic":
            given = "" if changes else _password(given)
        elif scheme.lower() != "bearer":
            given = ""
        return "right" if hmac.compare_digest(given.encode(), self._access.token.encode()) else "wrong"

    def _count_failure(self) -> None:
        now, failures = self._clock(), self._failures
        while failures and now - failures[0] > self._limits.failure_seconds:
            failures.popleft()
        if len(failures) >= self._limits.failures:
            raise TooManyFailures("too many wrong tokens came of late: try again later")
        failures.append(now)
        if len(failures) == self._limits.failures:
            log.warning("action=too_many_failures within_seconds=%d", self._limits.failure_seconds)

    def _bounded(self, receive: Receive) -> Receive:
        received, deadline = 0, None

        async def bounded() -> Message:
            nonlocal received, deadline
            if deadline is None:
                deadline = asyncio.get_running_loop().time() + self._limits.body_seconds
            if received < 0:  # the body is complete: what comes now is the caller's leaving, however late
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise RequestTooSlow(f"the body was not there within {self._limits.body_seconds:g} s") from None
            received += len(message.get("body", b""))
            if received > self._limits.body_bytes:
                raise BodyTooLarge(f"a body may have {self._limits.body_bytes} bytes")
            if not message.get("more_body", False):
                received = -1
            return message

        return bounded


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _password(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
