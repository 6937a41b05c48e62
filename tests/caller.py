"""A peer of an agent or a master that a test controls: it sends well, badly, and in pieces."""

import os
import socket
from pathlib import Path
from typing import Any, Self

from kctl.rpc.client import Reply, reply_of
from kctl_agent.rpc.messages import Request, Role, wire_method
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, Decoder, JsonObject, encode, json_text

ANSWER_SECONDS = 10.0


class Caller:
    """One connection. Each wait takes at most `ANSWER_SECONDS`."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_SECONDS)
        try:
            self.socket.connect(os.fsencode(path))
        except OSError:
            self.socket.close()
            raise
        self._decoder = Decoder(MAX_REPLY_BYTES)
        self._frames: list[JsonObject] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read_frame(self) -> JsonObject | None:
        """Returns None if the agent closed the connection between two frames."""
        while not self._frames:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                self._decoder.end()
                return None
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def read(self) -> Reply:
        frame = self.read_frame()
        assert frame is not None, "the agent closed the connection"
        return reply_of(json_text(frame).encode())

    def ask(self, rpc: str, **params: Any) -> Reply:
        self.send(question(rpc, "7f", **params))
        return self.read()

    def is_ended(self) -> bool:
        return self.read_frame() is None


def question(rpc: str, id_: str | None = None, **params: Any) -> bytes:
    return encode(Request(Role.MASTER, rpc, wire_method(rpc), id=id_, params=params).to_json())
