"""One kept connection to an agent on an asyncio loop: requests are pipelined, and replies are matched by id.

A question is a plain future, not a task, because the number of tasks determines the cost of an idle master.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from kctl.rpc.client import Reply, reply_of
from kctl_agent.errors import AgentError, AgentTimeout, AgentUnreachable, BrokenFrame
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, FrameDecoder

_BACKLOG_RETRY_SECONDS = 0.005


class AgentConnection(asyncio.Protocol):
    """One kept connection to an agent. Ends only in `connection_lost`, which fails every pending request."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(MAX_REPLY_BYTES, reply_of)
        self._unsent: list[bytes] = []
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._broken: AgentError | None = None

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, frame: bytes, request_id: str) -> asyncio.Future[Reply]:
        """Returns the future reply to an encoded request; ids of pending requests must differ. Cancelling the future
        drops a late reply. Raises AgentUnreachable."""
        if self._transport is None or self._transport.is_closing():
            raise AgentUnreachable("the connection has ended")
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Reply] = loop.create_future()
        self._waiting[request_id] = reply
        if not self._unsent:
            loop.call_soon(self._send)
        self._unsent.append(frame)
        return reply

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None:
            self._transport.write(b"".join(unsent))  # has no effect once the connection has ended

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for reply in self._decoder.feed(data):
                self._answered(reply)
            if self._decoder.error is not None:
                raise self._decoder.error
        except AgentError as error:
            self._broken = error
            self.close()

    def connection_lost(self, _exc: Exception | None) -> None:
        waiting, self._waiting = self._waiting, {}
        if self._broken is None and not self._decoder.at_boundary:
            self._broken = BrokenFrame("the agent closed the connection inside a reply")
        for reply in waiting.values():
            if not reply.done():
                reply.set_exception(self._broken or AgentUnreachable("the agent closed the connection"))

    def _answered(self, reply: Reply) -> None:
        """An error without an id concerns the connection (rejected, busy, not a frame), so all pending requests get
        it."""
        if reply.id is None:
            waiting, self._waiting = list(self._waiting.values()), {}
        else:
            waiting = [future for future in (self._waiting.pop(reply.id, None),) if future is not None]
        for future in waiting:
            if not future.done():
                future.set_result(reply)


async def connect(path: Path, deadline: float) -> AgentConnection:
    """`deadline` is a time of the running loop. Raises AgentUnreachable, AgentTimeout (the backlog stayed full)."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        # Not loop.sock_connect: for asyncio EAGAIN means "in progress", for a Unix socket it means "backlog full, not
        # connected", and the first send would fail with ENOTCONN.
        while True:
            try:
                sock.connect(str(path))
                break
            except BlockingIOError:
                if loop.time() + _BACKLOG_RETRY_SECONDS > deadline:
                    raise AgentTimeout("the agent's backlog is full") from None
                await asyncio.sleep(_BACKLOG_RETRY_SECONDS)
        _, connection = await loop.create_unix_connection(AgentConnection, sock=sock)
    except BaseException as error:
        sock.close()
        if isinstance(error, OSError):
            raise AgentUnreachable(_why(error)) from None
        raise
    return connection


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no socket"
    if isinstance(error, ConnectionRefusedError):
        return "no process listens on the socket"
    if isinstance(error, PermissionError):
        return "the socket is not permitted"
    return error.strerror or type(error).__name__
