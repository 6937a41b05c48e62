"""Runs uvicorn in the caller's event loop, without uvicorn's signal handlers and log configuration.

The number of connections is limited. Time limits apply to a TLS handshake, to a request, and to an answer that the
caller leaves unread. Malformed requests also get kctl's JSON error.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import math
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kctl.errors import PortTaken
from kctl.http.access import AccessRights, address_of, tls_context
from kctl.http.errors import HeadersTooLarge, RequestTooSlow, error_body
from kctl.http.guard import HEADER_BYTES, Guard
from kctl_agent.errors import BadRequest, Busy

MAX_CONNECTIONS = 256
LEAST_READ_BYTES = 65536  # how much of a pending answer must be read in `unread_seconds`
GOODBYE_SECONDS = 2.0  # how long the peer may take to end TLS in order

_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Busy"}


def is_loopback(address: str) -> bool:
    """Whether an address is loopback, or is not an IP address, as with a Unix socket."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return True


@dataclass(slots=True)
class Door:
    """The connection limits and TLS of one server, on one event loop."""

    refusals: Counter[str]
    tls: ssl.SSLContext | None = None  # secures new connections; may be replaced at any time
    max_connections: int = MAX_CONNECTIONS
    open: set[BoundedProtocol] = field(default_factory=set)
    """All accepted connections, because a connection costs a descriptor even before its TLS handshake."""

    def why_refused(self, newest: BoundedProtocol) -> str | None:
        """Returns the reason to reject `newest`, or None. One address may have at most half of all connections. This
        does not apply to loopback, because proxies, scrapers and people share it."""
        if len(self.open) > self.max_connections:  # `newest` is already in `open`
            return f"{self.max_connections} connections are open already"
        if is_loopback(newest.address):
            return None
        share = self.max_connections // 2
        if sum(each.address == newest.address for each in self.open) > share:
            return f"{share} connections of your address are open already"
        return None

    def close(self) -> None:
        """Ends TLS handshakes in progress. uvicorn ends all other connections."""
        for connection in list(self.open):
            connection.end_handshake()


class BoundedProtocol(H11Protocol):
    """One connection and its time limits, on the event loop."""

    handshake_seconds = 10.0
    request_seconds = 10.0
    """Time limit for a request's headers, from the connection or the first byte of a later request."""
    unread_seconds = 30.0

    address = ""
    _request_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None
    _handshake: asyncio.Task[None] | None = None
    _early = b""  # bytes that arrived between the end of the handshake and our notification of it

    def __init__(self, *args: Any, door: Door, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._door = door

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.address = str((transport.get_extra_info("peername") or ("",))[0])
        self._door.open.add(self)
        why = self._door.why_refused(self)
        if self._door.tls is None:
            self._begin(transport)
            if why is not None:
                self._refuse(503, Busy.code, why, True)
        elif why is not None:  # no answer is possible before the handshake
            self._door.refusals[Busy.code] += 1
            transport.abort()
        else:
            self._handshake = self.loop.create_task(self._secure(transport, self._door.tls))

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.open.discard(self)
        self._stop(self._request_timer)
        self._stop(self._unread_timer)
        if self.transport is not None:  # otherwise it never reached HTTP
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is None:
            self._early += data
            return
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop(self._request_timer)
            self._request_timer = None
        elif self._request_timer is None:
            self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reader(math.inf)

    def resume_writing(self) -> None:
        self._stop(self._unread_timer)
        super().resume_writing()

    def _expect_reader(self, waiting: float) -> None:
        still = self.transport.get_write_buffer_size()
        if still > waiting - LEAST_READ_BYTES:
            self.transport.abort()
        else:
            self._unread_timer = self.loop.call_later(self.unread_seconds, self._expect_reader, still)

    def send_400_response(self, _msg: str) -> None:
        if len(self.conn.trailing_data[0]) > (self.config.h11_max_incomplete_event_size or 0):
            self._refuse(431, HeadersTooLarge.code, "request line and headers are too large", False)
        else:
            self._refuse(400, BadRequest.code, "this is not an HTTP request", False)

    def end_handshake(self) -> None:
        if self._handshake is not None and self.transport is None:
            self._handshake.cancel()

    async def _secure(self, transport: asyncio.Transport, tls: ssl.SSLContext) -> None:
        secured = None
        try:
            secured = await self.loop.start_tls(
                transport,
                self,
                tls,
                server_side=True,
                ssl_handshake_timeout=self.handshake_seconds,
                ssl_shutdown_timeout=GOODBYE_SECONDS,
            )
        except OSError:  # no TLS, too slow, or gone: no peer to answer
            self._door.refusals["tls_handshake"] += 1
        finally:
            if secured is None:
                transport.abort()
                self._door.open.discard(self)
        if secured is not None:
            self._begin(secured)
            early, self._early = self._early, b""
            if early:
                self.data_received(early)

    def _begin(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if self._door.tls is None:  # TLS that is ended has GOODBYE_SECONDS
            # With asyncio's default, a closed connection with under 64 KiB left to send waits for its caller for ever.
            transport.set_write_buffer_limits(high=0)
        self._expect_request()

    def _expect_request(self) -> None:
        self._request_timer = self.loop.call_later(self.request_seconds, self._request_is_late)

    def _request_is_late(self) -> None:
        self._request_timer = None
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            return
        self._refuse(408, RequestTooSlow.code, f"the request did not arrive within {self.request_seconds:g} s", True)

    def _refuse(self, status: int, code: str, message: str, retriable: bool) -> None:
        self._door.refusals[code] += 1
        body = json.dumps(error_body(code, message, retriable)).encode()
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)  # bypasses h11, whose state machine may be in any state
        self.transport.close()

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


_BACKLOG = 128
_ACCEPTED_AT_ONCE = 16
"""asyncio accepts this many connections at a time before any of them can be rejected."""
_SHARE = 4
"""HTTP connections take at most 1/_SHARE of descriptors, because agents, brokers, logs and `master.sock` need some."""


def connection_bound(descriptors: int) -> int:
    """Returns the maximum number of connections. `descriptors` is RLIMIT_NOFILE."""
    if descriptors == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(min(MAX_CONNECTIONS, descriptors // _SHARE), 8)


def bind(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Port 0 takes any free port. First check the address with `access_of`. Call this
    before workers start, to detect a port in use early. Raises ConfigError or PortTaken."""
    ip = address_of(host)
    family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it each answer on a kept connection takes 40 ms.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((str(ip), port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno not in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
            raise
        what = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        raise PortTaken(
            f"port {port} on {host} {what}: set http.port to another one, or to 0 for any free one"
        ) from None
    return sock


@dataclass(frozen=True, slots=True)
class App:
    guarded: Guard
    restart: Callable[[], None] = lambda: None
    """Ends open streams, whose tokens are no longer valid."""
    close: Callable[[], None] = lambda: None
    """Ends streams and changes that would otherwise last long."""


class HttpServer:
    """An HTTP server. `serve` runs until `stop` is called, and owns the socket."""

    def __init__(self, app: App, sock: socket.socket, access: AccessRights | None = None) -> None:
        self._app = app
        self._sock = sock
        self._is_tls = access is not None and access.certificate is not None
        self._door = Door(
            app.guarded.refusals, _tls_of(access), connection_bound(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        )
        config = uvicorn.Config(
            app.guarded,
            http=partial(BoundedProtocol, door=self._door),  # type: ignore[arg-type]
            ws="none",
            interface="asgi3",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            backlog=_ACCEPTED_AT_ONCE,
            h11_max_incomplete_event_size=HEADER_BYTES,
            timeout_keep_alive=20,  # Prometheus asks earlier, or reconnects
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        host, port = self._sock.getsockname()[:2]
        return f"{'https' if self._is_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def connections(self) -> frozenset[object]:
        return frozenset(self._door.open)

    @property
    def refusals(self) -> Counter[str]:
        """Rejected requests and connections by error code, since the start."""
        return self._app.guarded.refusals

    async def serve(self) -> None:
        await self._server.serve(sockets=[self._sock])

    def use(self, access: AccessRights) -> list[str]:
        """Applies new tokens, host names and certificate. Cannot change the address, or switch TLS on or off. If the
        tokens change, ends all event streams. Returns which of `tokens`, `names` and `certificate` changed. If it
        raises ConfigError, all settings are unchanged."""
        before = self._app.guarded.access
        if self._is_tls and access.certificate is not None:
            self._door.tls = _tls_of(access)
        if access.tokens != before.tokens:
            self._app.restart()
        self._app.guarded.access = access
        parts = {
            "tokens": access.tokens != before.tokens,
            "names": access.hosts != before.hosts,
            "certificate": access.fingerprint != before.fingerprint,
        }
        return [part for part, is_new in parts.items() if is_new]

    def stop(self) -> None:
        """Ends `serve` within about a second."""
        self._app.close()
        self._door.close()
        self._server.should_exit = True
        self._server.is_stopped.set()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_stopped = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for sock in sockets or ():
            sock.listen(_BACKLOG)  # asyncio has set it to `_ACCEPTED_AT_ONCE`

    async def main_loop(self) -> None:
        # Wakes once per second, for the date in the headers; uvicorn's own loop wakes ten times.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.is_stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the master handles signals, because it stops the workers first


def _tls_of(access: AccessRights | None) -> ssl.SSLContext | None:
    return None if access is None or access.certificate is None else tls_context(access.certificate, access.key)
