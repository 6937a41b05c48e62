"""A proxy that has a server of objects overlook conditions: older servers, and some of today's, do so by themselves."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

__all__ = ["UnconditionalProxy"]

CONDITION, OTHER = b"if-none-match:", b"if-none-meant:"


class UnconditionalProxy:
    """Forwards to a port of this machine, and calls the header of a condition otherwise. A context manager."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        for each in self._open:
            each.close()

    def _begin(self, target: object, *args: socket.socket) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            self._open += [client, server]
            self._begin(self._forward, client, server)
            self._begin(self._forward, server, client)

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while received := source.recv(1 << 16):  # the headers of a request come in one piece
                target.sendall(received.replace(CONDITION, OTHER).replace(CONDITION.title(), OTHER))
            target.shutdown(socket.SHUT_RDWR)
