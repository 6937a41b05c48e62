"""A member of a streams group (KIP-1071) that does nothing but be one: Kafka Streams is not among the locked jars."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["streams_member"]

_KEY, _VERSION = 88, 0
_NULL, _EMPTY, _NO_TAGS = b"\x00", b"\x01", b"\x00"
_CONNECT_SECONDS = 20


@contextmanager
def streams_member(servers: str, group: str, topic: str) -> Iterator[None]:
    """It joins at once, and is a member until its session is over, 45 s later, or it leaves at the end."""
    host, port = servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), _CONNECT_SECONDS) as connection:
        _heartbeat(connection, group, 0, _topology(topic))
        yield
        _heartbeat(connection, group, -1, b"\xff")


def _heartbeat(connection: socket.socket, group: str, epoch: int, topology: bytes) -> None:
    tasks = _EMPTY * 3 if epoch == 0 else _NULL * 3
    body = b"".join(
        (
            _text(group),
            _text("member-1"),
            struct.pack(">ii", epoch, 0),
            _NULL * 2,  # instance, rack
            struct.pack(">i", 60_000),
            topology,
            tasks,
            _text("process-1") if epoch == 0 else _NULL,
            b"\xff",  # no endpoint
            _EMPTY if epoch == 0 else _NULL,
            _NULL * 2,  # offsets of tasks
            b"\x00",
            _NO_TAGS,
        )
    )
    frame = struct.pack(">hhih", _KEY, _VERSION, 7, -1) + _NO_TAGS + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    [size] = struct.unpack(">i", _read(connection, 4))
    answer = _read(connection, size)
    [code] = struct.unpack_from(">h", answer, 9)
    assert code == 0, f"error code {code}: {answer!r}"


def _topology(topic: str) -> bytes:
    """One part that reads `topic`."""
    part = _text("0") + b"\x02" + _text(topic) + _EMPTY * 5 + _NO_TAGS
    return b"\x01" + struct.pack(">i", 0) + b"\x02" + part + _NO_TAGS


def _text(text: str) -> bytes:
    data = text.encode()
    assert len(data) < 127
    return bytes([len(data) + 1]) + data


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "the broker hung up"
        data += part
    return data
