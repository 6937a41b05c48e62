"""Checks caller, host name and size of every request before any route.

A browser's headers show whether a page of another site made the request. Other clients can forge headers, so
kctl identifies a caller only by a token or, on loopback, by the user that the kernel reports.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import logging
import os
import re
import traceback
from collections import Counter
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kctl.http.access import AccessRights, Token, shown_token
from kctl.http.errors import (
    BodyTooLarge,
    HeadersTooLarge,
    HttpError,
    NotAllowed,
    RequestTooSlow,
    Unauthorized,
    error_response,
    internal_error,
)
from kctl_agent.errors import AgentError, BadRequest
from kctl_agent.peers import owner_of_peer

log = logging.getLogger(__name__)

CALLER_KEY: Final = "kctl.caller"  # ASGI scope key of the name of the caller's token
HOLDER_KEY: Final = "kctl.holder"  # ASGI scope key: whether the caller's token may act
OTHER_KEY: Final = "kctl.other"
"""ASGI scope key, set if the caller is another user without a token, who must not see error texts."""

_OF_HOLDERS: Final = ("/api/v1/dead-letters", "/api/v1/logs/", "/api/v1/settings", "/api/v1/operations/types")
"""Paths that need a token that may act, even to read: messages, logs that quote them, settings, forms of operations."""
_FOR_ALL: Final = frozenset({"/healthz", "/metrics"})

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_DECISIVE: Final = frozenset({b"host", b"origin", b"authorization", b"sec-fetch-site", b"content-type"})
"""Headers that may appear only once. Otherwise kctl and a proxy could use different values."""

_OPENED: Final = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
"""Headers of a person who follows a link or opens a window. Requests of frames and pages have other values."""
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
)
_CHALLENGE: Final = {"www-authenticate": 'Bearer realm="kctl", Basic realm="kctl"'}
"""With Basic, a browser asks the user for any name, and for the token as password. Basic only permits reading, because
a browser sends it by itself, whichever page makes the request."""
_CLOSE: Final = (b"connection", b"close")

HEADER_BYTES = 16 * 1024
BODY_BYTES = 64 * 1024
BODY_SECONDS = 10.0


class Guard:
    """Checks every request. Belongs to one event loop."""

    def __init__(self, app: ASGIApp, access: AccessRights, refusals: Counter[str] | None = None) -> None:
        self._app = app
        self._wrong_tokens = 0
        self.access = access  # replaced as a whole when tokens are read again
        self.refusals: Counter[str] = Counter() if refusals is None else refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = _Exchange(receive, send, has_body=_has_body(scope))
        try:
            self._check(scope)
            await self._app(scope, exchange.receive, exchange.send)
        except (HttpError, AgentError) as error:
            await self._refuse(error, scope, exchange)
        except Exception as error:
            # Neither the message nor the exception: a caller may have written part of it.
            where = "".join(traceback.format_tb(error.__traceback__))
            route = getattr(scope.get("route"), "path", "-")  # not the path: nothing from a request goes into a log
            log.error("action=http_failed route=%s error=%s\n%s", route, type(error).__name__, where)
            if not exchange.has_begun:
                await internal_error({"connection": "close"})(scope, exchange.receive, exchange.send)

    async def _refuse(self, error: HttpError | AgentError, scope: Scope, exchange: _Exchange) -> None:
        self.refusals[error.code] += 1
        if exchange.has_begun:
            return
        headers = {"connection": "close"}  # the rest of its body is not read
        if isinstance(error, Unauthorized):
            headers |= _CHALLENGE
        await error_response(error, headers)(scope, exchange.receive, exchange.send)

    def _check(self, scope: Scope) -> None:
        headers = self._headers(scope)
        changes = scope["method"] not in _SAFE
        host, origin = headers.get("host", ""), headers.get("origin")
        is_linked = scope["path"] == "/" and not changes and headers.items() >= _OPENED.items()
        # Older browsers and other clients send no such header.
        if headers.get("sec-fetch-site", "").strip().lower() == "cross-site" and not is_linked:
            raise NotAllowed(
                "requests from pages of another site are rejected: open this address itself, not a link to it"
            )
        try:
            if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
                raise NotAllowed("requests from pages of another origin are rejected")
        except ValueError:
            raise BadRequest("the Origin header cannot be read") from None
        self._check_caller(scope, headers.get("authorization"), host, changes or scope["path"].startswith(_OF_HOLDERS))
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdecimal()) or len(length) > 18 or int(length) > BODY_BYTES:
            raise BodyTooLarge(f"a body may have {BODY_BYTES} bytes")

    def _headers(self, scope: Scope) -> dict[str, str]:
        size = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if size + sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES:
            raise HeadersTooLarge(f"request line and headers are larger than {HEADER_BYTES} bytes")
        decisive = [name for name, _ in scope["headers"] if name in _DECISIVE]
        if len(set(decisive)) < len(decisive):
            raise BadRequest("a header that may appear only once appears twice")
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

    def _check_caller(self, scope: Scope, authorization: str | None, host: str, needs_acting: bool) -> None:
        access = self.access
        if needs_acting and not access.may_act:
            raise NotAllowed(
                "this request changes something or shows messages, so it needs a token, but none is configured: set "
                "http.token_file"
            )
        if authorization is not None and access.tokens:
            token = self._token((scope.get("client") or ("",))[0], authorization, needs_acting)
            if needs_acting and not token.may_act:
                raise NotAllowed(
                    "this token may only read: a request that changes something or shows messages needs a token of "
                    "http.token_file"
                )
            scope[CALLER_KEY], scope[HOLDER_KEY] = token.name, token.may_act
            return
        if needs_acting or not access.is_open:
            raise Unauthorized("a token is needed: send `Authorization: Bearer …`")
        name = host_name(host)
        if name is None or not (is_loopback_name(name) or name in access.hosts):
            raise NotAllowed(
                "without a token, clients must call this server localhost: add other names to http.allowed_hosts"
            )
        if not (access.others_may_read or scope["path"] in _FOR_ALL or _is_own(scope)):
            if scope["path"] != "/readyz":
                raise Unauthorized("users other than the fleet's and root need a token: set http.read_token_file")
            scope[OTHER_KEY] = True

    def _token(self, source: str, authorization: str, needs_acting: bool) -> Token:
        # No lockout: 16 characters cannot be guessed, and local users, who share an address, could lock out each other.
        scheme, _, value = authorization.partition(" ")
        given = value.strip()
        if scheme.lower() == "basic":
            given = "" if needs_acting else _password(given)
        elif scheme.lower() != "bearer":
            given = ""
        token = shown_token(given, self.access.tokens)
        if token is None:
            self._wrong_tokens = count = self._wrong_tokens + 1
            if count & (count - 1) == 0:  # a line for each power of two, with the address but not the token
                log.warning("action=wrong_token source=%s count=%d", source or "-", count)
            raise Unauthorized("the token is wrong")
        return token


class _Exchange:
    def __init__(self, receive: Receive, send: Send, *, has_body: bool) -> None:
        self._receive = receive
        self._send = send
        self._is_whole = not has_body
        self._received = 0
        self._deadline: float | None = None
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            own = list(message.get("headers", ()))
            has_policy = any(name == b"content-security-policy" for name, _ in own)
            added = [*(_HEADERS[:-1] if has_policy else _HEADERS)]
            # Otherwise a body that is no longer read would keep the connection open.
            if not self._is_whole and _CLOSE not in own:
                added.append(_CLOSE)
            message["headers"] = [*own, *added]
        await self._send(message)

    async def receive(self) -> Message:
        if self._is_whole:  # only the disconnect can follow, however late
            return await self._receive()
        try:
            message = await self._received_in_time()
        except HttpError:
            if not self.has_begun:
                raise
            return {"type": "http.disconnect"}  # too late for an error response
        self._is_whole = not message.get("more_body", False)
        return message

    async def _received_in_time(self) -> Message:
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise RequestTooSlow(f"the body did not arrive within {BODY_SECONDS:g} s") from None
        self._received += len(message.get("body", b""))
        if self._received > BODY_BYTES:
            raise BodyTooLarge(f"a body may have {BODY_BYTES} bytes")
        return message


def host_name(host: str) -> str | None:
    """Returns the name or address of a Host header in lower case, without the port. Returns None if the header is
    malformed. An IPv6 address keeps its brackets."""
    match = _HOST.fullmatch(host)
    if match is None:
        return None
    address, name = match.groups()
    return f"[{address.lower()}]" if address else str(name).lower()


def is_loopback_name(name: str) -> bool:
    """Whether the name is `localhost`, `[::1]`, or an address in 127.0.0.0/8. A domain name that begins with `127.`
    does not count, because its owner can make it resolve to 127.0.0.1 (DNS rebinding)."""
    if name == "localhost":
        return True
    try:
        if name.startswith("["):
            return ipaddress.IPv6Address(name[1:-1]).is_loopback
        return ipaddress.IPv4Address(name).is_loopback
    except ValueError:
        return False


def _is_own(scope: Scope) -> bool:
    try:
        return owner_of_peer(scope["client"], scope["server"]) in (os.geteuid(), 0)
    except OSError:
        return False


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b" 0"))
        for name, value in scope["headers"]
    )


def _password(value: str) -> str:
    try:
        return base64.b64decode(value.encode(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
