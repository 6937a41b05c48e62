"""The HTTP socket and uvicorn, run in the master's loop: no signal handlers, loggers or threads of its own."""

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
from kctl.http.guard import Guard
from kctl.http.protocol import MAX_CONNECTIONS, BoundedProtocol, Door

_BACKLOG = 128
_SHUTDOWN_SECONDS = 1
_IDLE_SECONDS = 20
"""A connection that is kept and asks nothing for so long is closed; Prometheus comes again before, or reconnects."""
_HEADER_BYTES = 16 * 1024
_ACCEPTED_AT_ONCE = 16
"""asyncio accepts as many connections at a time as its backlog allows, before any of them can be refused."""
_SHARE = 4
"""HTTP connections take at most one of so many descriptors: the others are for agents, brokers, logs and `master.sock`,
which must work while strangers hold all connections that they can get."""


def connection_bound(descriptors: int) -> int:
    """The most connections where the process may have so many descriptors (RLIMIT_NOFILE)."""
    if descriptors == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(min(MAX_CONNECTIONS, descriptors // _SHARE), 8)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Bound early, so that a taken port is found before workers start.
    Whether this address may be served is for `access_of` to decide. Raises ConfigError: no IP address; PortTaken:
    somebody listens there already."""
    ip = address_of(host)
    family = socket.AF_INET6 if ip.version == 6 else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without, each answer on a kept connection takes 40 ms.
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
    """What is served, an ASGI application, and how it is ended."""

    guarded: Guard
    restart: Callable[[], None] = lambda: None
    """Ends streams that are open: they were let in by tokens that count no more."""
    close: Callable[[], None] = lambda: None
    """Ends what would otherwise go on for ever, or for long."""


class HttpServer:
    """`serve` runs until `stop`; it owns the socket from then on."""

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
            h11_max_incomplete_event_size=_HEADER_BYTES,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        return url_of(self._sock, is_tls=self._is_tls)

    @property
    def connections(self) -> frozenset[object]:
        """Those that are open, from the moment they were accepted."""
        return frozenset(self._door.open)

    @property
    def refusals(self) -> Counter[str]:
        """Error code to how many requests and connections were refused with it since the start."""
        return self._app.guarded.refusals

    async def serve(self) -> None:
        await self._server.serve(sockets=[self._sock])

    def use(self, access: AccessRights) -> list[str]:
        """From now on these tokens, names and this certificate count; the address and whether TLS is spoken stay. With
        other tokens event streams end: clients must show one that is valid now, and browsers do so by themselves.
        Returns what is another one than before, of `tokens`, `names`, `certificate`. Raises ConfigError: the
        certificate cannot be used; nothing has changed."""
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
            sock.listen(_BACKLOG)  # asyncio has set it to what it accepts at once

    async def main_loop(self) -> None:
        """Once a second, for the date in the headers; uvicorn's own wakes up ten times to see whether it shall end."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.is_stopped.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the master: it stops the workers first."""
        yield


def _tls_of(access: AccessRights | None) -> ssl.SSLContext | None:
    return None if access is None or access.certificate is None else tls_context(access.certificate, access.key)


def url_of(sock: socket.socket, *, is_tls: bool) -> str:
    host, port = sock.getsockname()[:2]
    return f"{'https' if is_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
