"""Proxies with faults: one loses a reply, one hides conditions from an object store."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

CONDITION, OTHER = b"if-none-match:", b"if-none-meant:"


class _Proxy:
    """Forwards each connection of `listener` to the socket that `connected` returns. A context manager."""

    def __init__(self, listener: socket.socket, connected: Callable[[], socket.socket]) -> None:
        self._listener = listener
        self._connected = connected
        self._open: list[socket.socket] = [listener]
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for each in list(self._open):
            _end(each)
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
            server = self._connected()
            self._open += [client, server]
            self._begin(self._forward, client, server, False)
            self._begin(self._forward, server, client, True)

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, name="proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _forward(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        raise NotImplementedError


class CuttingProxy(_Proxy):
    """Loses a reply on demand, after the server has done its work."""

    def __init__(self, path: Path, server: Path) -> None:
        self.path = path
        self.cuts = 0
        self._is_armed = threading.Event()
        self._of = b""
        self._meanwhile: Callable[[], object] = int
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        super().__init__(listener, lambda: _to(server))

    def cut_next_reply(self, of: bytes = b"", meanwhile: Callable[[], object] = int) -> None:
        """Drops the server's next reply to a request that contains `of`. Calls `meanwhile` before it ends the
        connection."""
        self._of, self._meanwhile = of, meanwhile
        if not of:
            self._is_armed.set()

    def _forward(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
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
        _end(source)
        _end(target)


class UnconditionalProxy(_Proxy):
    """Renames the header of a condition, because older object stores, and some of today's, ignore it."""

    def __init__(self, port: int) -> None:
        super().__init__(socket.create_server(("127.0.0.1", 0)), lambda: socket.create_connection(("127.0.0.1", port)))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _forward(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        with suppress(OSError):
            while received := source.recv(1 << 16):  # the headers of a request come in one piece
                target.sendall(received.replace(CONDITION, OTHER).replace(CONDITION.title(), OTHER))
            target.shutdown(socket.SHUT_RDWR)


def _to(server: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(server))
    return connection


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
