"""Idle members of groups of the newer kinds: KIP-848, share and streams groups.

They send raw heartbeats, because kafka-python does not know them and the locked jars lack Kafka Streams.
"""

import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.conftest import eventually

_CONSUMER_HEARTBEAT, _SHARE_HEARTBEAT, _STREAMS_HEARTBEAT, _ALTER_SHARE_OFFSETS = (68, 1), (76, 1), (88, 0), (91, 0)
_NULL, _EMPTY, _NO_TAGS = b"\x00", b"\x01", b"\x00"
_CONNECT_SECONDS = 20
_JOINS, _LEAVES = 0, -1
_CLIENT_ID = b"kctl-tests"
_EPOCH_AT = 12 + len(b"\x09member-1")  # after correlation id, tags, throttle time, code, empty message, id


@contextmanager
def consumer_member(servers: str, group: str, topic: str) -> Iterator[None]:
    """Joins a KIP-848 group at once. The member leaves at the end, or its session expires after 45 s."""

    def body(epoch: int) -> bytes:
        subscribed, owned = (_array(_text(topic)), _EMPTY) if epoch == _JOINS else (_NULL, _NULL)
        timeout = 60_000 if epoch == _JOINS else -1
        about = struct.pack(">i", epoch) + _NULL * 2 + struct.pack(">i", timeout)  # no instance, no rack
        return _text(group) + _text("member-1") + about + subscribed + _NULL * 2 + owned + _NO_TAGS

    with _connected(servers) as connection:
        _ask(connection, _CONSUMER_HEARTBEAT, body(_JOINS))
        yield
        _ask(connection, _CONSUMER_HEARTBEAT, body(_LEAVES))


@contextmanager
def share_member(servers: str, group: str, topic: str, *, is_assigned: bool = False) -> Iterator[None]:
    """Joins a share group (KIP-932). It fetches nothing, so no partition has a start offset. `is_assigned`: wait for
    its partitions, which takes some seconds."""

    def body(epoch: int) -> bytes:
        subscribed = _array(_text(topic)) if epoch == _JOINS else _NULL
        return _text(group) + _text("member-1") + struct.pack(">i", epoch) + _NULL + subscribed + _NO_TAGS

    with _connected(servers) as connection:
        answer = _ask(connection, _SHARE_HEARTBEAT, body(_JOINS))
        if is_assigned:
            eventually(lambda: _has_partitions(_ask(connection, _SHARE_HEARTBEAT, body(_epoch(answer)))))
        yield
        _ask(connection, _SHARE_HEARTBEAT, body(_LEAVES))


@contextmanager
def streams_member(servers: str, group: str, topic: str, *, is_assigned: bool = False) -> Iterator[None]:
    """Joins a streams group (KIP-1071) at once. It leaves at the end, or its session expires after 45 s. `is_assigned`:
    wait for its tasks, which takes some seconds."""

    def body(epoch: int, tasks: bytes = _EMPTY) -> bytes:
        is_new = epoch == _JOINS
        parts = (
            _text(group),
            _text("member-1"),
            struct.pack(">ii", epoch, 0),
            _NULL * 2,  # instance, rack
            struct.pack(">i", 60_000),
            _topology(topic) if is_new else b"\xff",
            _NULL * 3 if epoch == _LEAVES else tasks + _EMPTY * 2,
            _text("process-1") if is_new else _NULL,
            b"\xff",  # no endpoint
            _EMPTY if is_new else _NULL,
            _NULL * 2,  # offsets of tasks
            b"\x00",
            _NO_TAGS,
        )
        return b"".join(parts)

    with _connected(servers) as connection:
        answer = _ask(connection, _STREAMS_HEARTBEAT, body(_JOINS))

        def assigned() -> bytes:
            nonlocal answer
            answer = _ask(connection, _STREAMS_HEARTBEAT, body(_epoch(answer)))
            return _tasks(answer)

        if is_assigned:
            tasks = eventually(assigned)
            _ask(connection, _STREAMS_HEARTBEAT, body(_epoch(answer), tasks))
        yield
        _ask(connection, _STREAMS_HEARTBEAT, body(_LEAVES))


def alter_share_offsets(servers: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Sets where a share group without members begins, as `kafka-share-groups --reset-offsets` does."""
    partitions = [struct.pack(">iq", partition, offset) + _NO_TAGS for partition, offset in offsets.items()]
    body = _text(group) + _array(_text(topic) + _array(*partitions) + _NO_TAGS) + _NO_TAGS
    with _connected(servers) as connection:
        _ask(connection, _ALTER_SHARE_OFFSETS, body)


@contextmanager
def _connected(servers: str) -> Iterator[socket.socket]:
    host, port = servers.rsplit(":", 1)
    with socket.create_connection((host, int(port)), _CONNECT_SECONDS) as connection:
        connection.settimeout(_CONNECT_SECONDS)
        yield connection


def _ask(connection: socket.socket, request: tuple[int, int], body: bytes) -> bytes:
    frame = struct.pack(">hhih", *request, 7, len(_CLIENT_ID)) + _CLIENT_ID + _NO_TAGS + body
    connection.sendall(struct.pack(">i", len(frame)) + frame)
    [size] = struct.unpack(">i", _read(connection, 4))
    answer = _read(connection, size)
    [code] = struct.unpack_from(">h", answer, 9)  # after the throttle time
    assert code == 0, f"error code {code}: {answer!r}"
    return answer


def _epoch(answer: bytes) -> int:
    [epoch] = struct.unpack_from(">i", answer, _EPOCH_AT)
    return int(epoch)


def _has_partitions(answer: bytes) -> bool:
    at = _EPOCH_AT + 8
    return answer[at] == 1 and answer[at + 1] > 1


def _tasks(answer: bytes) -> bytes:
    """Returns active tasks, encoded. They are empty if there are none or they have not changed."""
    at = _EPOCH_AT + 16
    statuses, at = max(answer[at] - 1, 0), at + 1
    for _ in range(statuses):
        at += 1 + answer[at + 1] + 1  # a code, a sentence
    begin = at
    count, at = max(answer[at] - 1, 0), at + 1
    for _ in range(count):
        at += answer[at]  # the subtopology
        at += 1 + 4 * (answer[at] - 1) + 1
    return answer[begin:at] if count else b""


def _topology(topic: str) -> bytes:
    part = _text("0") + b"\x02" + _text(topic) + _EMPTY * 5 + _NO_TAGS
    return b"\x01" + struct.pack(">i", 0) + b"\x02" + part + _NO_TAGS


def _array(*items: bytes) -> bytes:
    assert len(items) < 127
    return bytes([len(items) + 1]) + b"".join(items)


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
