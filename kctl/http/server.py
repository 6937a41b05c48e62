"""The HTTP socket and uvicorn in the master's loop, without signal handlers, loggers or threads of its own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import uvicorn

from kctl.errors import PortTaken
from kctl.http.access import AccessRights, address_of, tls_context
from kctl.http.guard import HEADER_BYTES, Guard
from kctl.http.protocol import MAX_CONNECTIONS, BoundedProtocol, Door

_BACKLOG = 128
_SHUTDOWN_SECONDS = 1
_IDLE_SECONDS = 20
"""An idle connection is closed after this; Prometheus asks earlier, or reconnects."""
_ACCEPTED_AT_ONCE = 16
"""asyncio accepts this many connections at a time before any of them can be rejected."""
_SHARE = 4
"""HTTP connections take at most this fraction of the descriptors, because agents, brokers, logs and `master.sock` must
still work."""


def connection_bound(descriptors: int) -> int:
    """`descriptors`: RLIMIT_NOFILE."""
    if descriptors == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(min(MAX_CONNECTIONS, descriptors // _SHARE), 8)


def bind(host: str, port: int) -> socket.socket:
    """Returns a listening socket; port 0 takes any free one. Call it early, to find a taken port before workers start.
    `access_of` checks whether the address is allowed. Raises ConfigError, PortTaken."""
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
    """Ends what would otherwise last long."""


class HttpServer:
    """The HTTP server; `serve` runs until `stop`, and owns the socket."""

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
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        host, port = self._sock.getsockname()[:2]
        return f"{'https' if self._is_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def connections(self) -> frozenset[object]:
        """Includes connections from the moment they were accepted."""
        return frozenset(self._door.open)

    @property
    def refusals(self) -> Counter[str]:
        """Rejected requests and connections by error code, since the start."""
        return self._app.guarded.refusals

    async def serve(self) -> None:
        await self._server.serve(sockets=[self._sock])

    def use(self, access: AccessRights) -> list[str]:
        """Applies tokens, names and certificate; the address and whether TLS is used stay. New tokens end event
        streams: browsers reconnect by themselves with a valid one. Returns which of `tokens`, `names`, `certificate`
        changed. Raises ConfigError and then changes nothing."""
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
        """Wakes once per second, for the date in the headers; uvicorn's own loop wakes ten times."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.is_stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The master handles signals, because it stops the workers first."""
        yield


def _tls_of(access: AccessRights | None) -> ssl.SSLContext | None:
    return None if access is None or access.certificate is None else tls_context(access.certificate, access.key)
