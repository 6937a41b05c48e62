"""Asks an agent one question and waits for the answer."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from kctl_agent.errors import BadPayload, CommandFailed
from kctl_agent.rpc.messages import Request, Role, wire_method
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, Decoder, JsonObject, encode

_READ_BYTES = 1 << 16


def ask(path: Path, rpc: str, params: JsonObject, timeout_seconds: float) -> JsonObject:
    """Returns the result of command `rpc` from the agent at this socket. Raises OSError (no answer in time),
    CommandFailed (the agent's error message), WireError (malformed reply)."""
    request = Request(
        Role.MASTER, rpc, wire_method(rpc), params=params, deadline_ms=max(int(timeout_seconds * 1000), 1)
    )
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_seconds)
        connection.connect(os.fsencode(path))
        connection.sendall(encode(request.to_json()))
        reply = _frame(connection)
    error, result = reply.get("error"), reply.get("result")
    if isinstance(error, dict):
        raise CommandFailed(str(error.get("message")))
    if not isinstance(result, dict):
        raise BadPayload("not a reply: it has neither a result nor an error")
    return result


def _frame(connection: socket.socket) -> JsonObject:
    decoder = Decoder(MAX_REPLY_BYTES)
    while True:
        data = connection.recv(_READ_BYTES)
        if not data:
            decoder.end()
            raise ConnectionResetError("the agent closed the connection")
        for frame in decoder.feed(data):
            return frame
