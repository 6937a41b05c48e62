"""One blocking call to a master, for `kctl rpc`. Imports very little, because start-up is most of its cost."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

from kctl.errors import NobodyListening, NoSocketFile, SocketNotPermitted
from kctl.rpc.reply import Reply, reply_of
from kctl_agent.errors import AgentTimeout, AgentUnreachable, BrokenFrame
from kctl_agent.rpc.messages import Request
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, MAX_REQUEST_BYTES, FrameDecoder, encode

_CHUNK_BYTES = 256 * 1024


def call(socket_path: Path, request: Request, timeout_seconds: float) -> Reply:
    """`timeout_seconds` covers connecting, sending and receiving. Returns an error from the other side as a Reply.
    Raises NoSocketFile, NobodyListening, SocketNotPermitted, AgentTimeout, AgentUnreachable (the connection broke),
    WireError (not a frame, or too large)."""
    deadline = time.monotonic() + timeout_seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            _connect(connection, socket_path, timeout_seconds)
            connection.settimeout(_remaining(deadline))
            connection.sendall(encode(request.to_json(), MAX_REQUEST_BYTES))
            return _receive(connection, deadline)
        except (TimeoutError, BlockingIOError):
            raise AgentTimeout(f"the master at {socket_path} did not answer within {timeout_seconds:g} s") from None
        except (ConnectionResetError, BrokenPipeError, BrokenFrame):
            raise AgentUnreachable(f"{socket_path} closed the connection before it had answered") from None


def _connect(connection: socket.socket, path: Path, timeout_seconds: float) -> None:
    # A non-blocking connect to a full backlog fails at once with EAGAIN; with SO_SNDTIMEO it waits (unix(7)).
    seconds, fraction = divmod(timeout_seconds, 1)
    connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(seconds), max(int(fraction * 1e6), 1))
    )
    try:
        connection.connect(str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise NoSocketFile(f"no master is running there: {path} does not exist; run `kctl start`") from None
    except ConnectionRefusedError:
        raise NobodyListening(
            f"no master is running there: nobody listens on {path}, its owner is gone; run `kctl start`"
        ) from None
    except PermissionError:
        raise SocketNotPermitted(f"you are not permitted to use {path}: it belongs to another user") from None


def _receive(connection: socket.socket, deadline: float) -> Reply:
    decoder = FrameDecoder(MAX_REPLY_BYTES, reply_of)
    while True:
        connection.settimeout(_remaining(deadline))
        data = connection.recv(_CHUNK_BYTES)
        if not data:
            raise BrokenFrame("no whole reply")
        for reply in decoder.feed(data):
            return reply


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining
