"""A proxy between a client and a server on a Unix socket that loses a reply: the server has done what was asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["CuttingProxy"]


class CuttingProxy:
    """Listens at `path` and forwards to `server`; a context manager."""

    def __init__(self, path: Path, server: Path) -> None:
        self.path = path
        self.cuts = 0
        self._server = server
        self._is_armed = threading.Event()
        self._of = b""
        self._meanwhile: Callable[[], object] = int
        self._listener = socket.socket(socket.AF_UNIX)
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def cut_next_reply(self, of: bytes = b"", meanwhile: Callable[[], object] = int) -> None:
        """The next reply of the server, to a request that holds `of`, is thrown away, and its connection ends;
        `meanwhile` is done before."""
        self._of, self._meanwhile = of, meanwhile
        if not of:
            self._is_armed.set()

    def __enter__(self) -> CuttingProxy:
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._open):
            self._end(each)
        for thread in self._threads:
            thread.join(30)
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            self._open += [client, server]
            server.connect(str(self._server))
            self._begin(self._forward, client, server)
            self._begin(self._forward, server, client)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        is_reply = source.getpeername() == str(self._server)
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if is_reply and self._is_armed.is_set():
                    self._is_armed.clear()
                    self.cuts += 1
                    self._meanwhile()
                    break
                if not is_reply and self._of and self._of in data:
                    self._of = b""
                    self._is_armed.set()
                target.sendall(data)
        self._end(source)
        self._end(target)

    def _begin(self, work: object, *arguments: socket.socket) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, name="cutting proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    @staticmethod
    def _end(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
