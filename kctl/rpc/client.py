"""Decodes a reply, and makes one blocking call to a master. Imports little, so that `kctl rpc` starts fast."""

import socket
import struct
import time
from pathlib import Path
from typing import Final

import msgspec

from kctl.errors import NobodyListening, NoSocketFile, SocketNotPermitted
from kctl_agent.errors import AgentTimeout, AgentUnreachable, BadPayload, BrokenFrame
from kctl_agent.rpc.messages import Request
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, MAX_REQUEST_BYTES, FrameDecoder, JsonObject, encode, parse_object

_OBJECT: Final = ord("{")
_NONE: Final = msgspec.Raw(b"null")


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, rename={"sender": "from"}):
    """An error on the wire. Only errors in `Reply.failed` have a `sender`."""

    code: str
    message: str
    retriable: bool = False
    sender: str | None = None

    def to_json(self) -> JsonObject:
        sender = {} if self.sender is None else {"from": self.sender}
        return {**sender, "code": self.code, "message": self.message, "retriable": self.retriable}


class Reply(msgspec.Struct, frozen=True, rename={"sender": "from", "raw": "result"}):
    """A reply from an agent or master. `error` is set if `ok` is false. `complete` is false if `failed` has entries."""

    ok: bool
    id: str | None = None
    raw: msgspec.Raw = msgspec.Raw(b"{}")  # decoded later by `kctl.rpc.decode`
    sender: str | None = None
    age_seconds: float | None = None
    error: Failure | None = None
    complete: bool = True
    asked: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    failed: tuple[Failure, ...] = ()
    stopped: tuple[str, ...] = ()  # agents that were stopped by request, and so are not missing
    verdict: msgspec.Raw = _NONE  # set by a master

    @property
    def has_verdict(self) -> bool:
        return bytes(self.verdict) != b"null"

    @property
    def result(self) -> JsonObject:
        """Returns the result as sent. Raises BadPayload if it is not an object."""
        return parse_object(bytes(self.raw))


_decode: Final = msgspec.json.Decoder(Reply).decode


def reply_of(payload: bytes | bytearray) -> Reply:
    """Decodes a frame as a reply. Raises BadPayload. Its message names the bad field without the value."""
    try:
        reply = _decode(payload)
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise BadPayload(f"the answer is not a reply: {why}") from None
    except (msgspec.DecodeError, RecursionError):
        raise BadPayload("the frame is not JSON") from None
    if reply.ok is (reply.error is not None):
        raise BadPayload("the answer is not a reply: exactly a rejection has an error")
    if memoryview(reply.raw)[0] != _OBJECT:
        raise BadPayload("the answer is not a reply: its result is not an object")
    return reply


def call(socket_path: Path, request: Request, timeout_seconds: float) -> Reply:
    """Sends one request and returns the reply, even an error reply. `timeout_seconds` covers connecting, sending and
    receiving. Raises NoSocketFile, NobodyListening, SocketNotPermitted, AgentTimeout, AgentUnreachable (the connection
    broke) or WireError (a malformed or too large frame)."""
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
            f"no master is running there: no process listens on {path}, because its owner has ended; run `kctl start`"
        ) from None
    except PermissionError:
        raise SocketNotPermitted(f"you are not permitted to use {path}: it belongs to another user") from None


def _receive(connection: socket.socket, deadline: float) -> Reply:
    decoder = FrameDecoder(MAX_REPLY_BYTES, reply_of)
    while True:
        connection.settimeout(_remaining(deadline))
        data = connection.recv(256 * 1024)
        if not data:
            raise BrokenFrame("no whole reply")
        for reply in decoder.feed(data):
            return reply


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining
