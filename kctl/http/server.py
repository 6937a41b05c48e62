"""The HTTP socket and uvicorn, run in the master's loop: no signal handlers, loggers or threads of its own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator

import uvicorn

from kctl.errors import PortTaken
from kctl.http.access import Access, address_of
from kctl.http.app import App
from kctl.http.protocol import BoundedProtocol

__all__ = ["HttpServer", "bind"]

_BACKLOG = 128
_SHUTDOWN_SECONDS = 1
_IDLE_SECONDS = 20
"""A connection that is kept and asks nothing for so long is closed; Prometheus comes again before, or reconnects."""
_HEADER_BYTES = 16 * 1024


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Bound early, so that a taken port is found before workers start.
    Whether this address may be served is `access_of`'s to say.

    Raises:
        ConfigError: no IP address.
        PortTaken: somebody listens there already.
    """
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


class HttpServer:
    """`serve` runs until `stop`; it owns the socket from then on."""

    def __init__(self, app: App, sock: socket.socket, access: Access | None = None) -> None:
        self._app = app
        self._sock = sock
        self._access = access or Access()
        config = uvicorn.Config(
            app.guarded,
            http=BoundedProtocol,
            ws="none",
            interface="asgi3",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            h11_max_incomplete_event_size=_HEADER_BYTES,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            ssl_certfile=self._access.certificate,
            ssl_keyfile=self._access.key,
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        return url_of(self._sock, is_tls=self._access.certificate is not None)

    @property
    def connections(self) -> frozenset[object]:
        """Those that are open."""
        return frozenset(self._server.server_state.connections)

    async def serve(self) -> None:
        await self._server.serve(sockets=[self._sock])

    def stop(self) -> None:
        """Ends `serve` within about a second."""
        self._app.close()
        self._server.should_exit = True
        self._server.is_stopped.set()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_stopped = asyncio.Event()

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


def url_of(sock: socket.socket, *, is_tls: bool) -> str:
    host, port = sock.getsockname()[:2]
    return f"{'https' if is_tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
