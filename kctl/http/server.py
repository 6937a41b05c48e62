"""The HTTP socket and uvicorn, run in the master's loop: no signal handlers, loggers or threads of its own."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from kctl.errors import ConfigError, PortTaken

__all__ = ["HttpServer", "bind"]

_BACKLOG = 128
_SHUTDOWN_SECONDS = 1


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Bound early, so that a taken port is found before workers start.

    Raises:
        ConfigError: not a loopback address. Figures would be open to the network, and there are no tokens yet.
        PortTaken: somebody listens there already.
    """
    address = "127.0.0.1" if host == "localhost" else host
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        ip = None
    if ip is None or not ip.is_loopback:
        raise ConfigError(
            f"http.host is {host}, but only a loopback address (127.0.0.1, ::1, localhost) is served: "
            "there are no access tokens yet; put a proxy in front for others"
        )
    sock = socket.socket(socket.AF_INET6 if ip.version == 6 else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
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

    def __init__(self, app: FastAPI, sock: socket.socket) -> None:
        self._sock = sock
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            backlog=_BACKLOG,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        return url_of(self._sock)

    async def serve(self) -> None:
        await self._server.serve(sockets=[self._sock])

    def stop(self) -> None:
        """Ends `serve` within about a second."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the master: it stops the workers first."""
        yield


def url_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
