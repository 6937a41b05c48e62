"""The server of `master.sock`, with limits on the resources that a caller can use.

kctl reads the next request of a connection only after it has replied. So a caller that sends requests without reading
replies fills the kernel's buffers, not kctl's.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kctl.errors import KctlError
from kctl.master.operations.base import Caller
from kctl_agent.errors import (
    AgentError,
    BrokenFrame,
    Busy,
    CommandFailed,
    FrameTooLarge,
    NotPermitted,
    PathError,
    WireError,
)
from kctl_agent.paths import MASTER_NAME, BoundSocket, bind_socket, is_permitted, peer_credentials
from kctl_agent.rpc.messages import Request, readable_id, reply_error
from kctl_agent.rpc.wire import MAX_REQUEST_BYTES, Decoder, JsonObject, encode

log = logging.getLogger(__name__)

_BACKLOG = 256


@dataclass(frozen=True, slots=True)
class SocketLimits:
    max_connections: int = 256
    frame_timeout_seconds: float = 5.0  # from the first byte of a frame to its last
    idle_timeout_seconds: float = 300.0
    write_timeout_seconds: float = 5.0  # closes a caller that does not read its reply for this long


class ControlServer:
    """Serves `master.sock` on one event loop. Calls `answer` with each well-formed request and its caller. The
    kernel provides the caller's identity. `answer` may raise AgentError or KctlError."""

    def __init__(
        self, answer: Callable[[Request, Caller], Awaitable[JsonObject]], limits: SocketLimits | None = None
    ) -> None:
        self._answer = answer
        self._limits = limits or SocketLimits()
        self._connections: set[asyncio.Task[None]] = set()
        self._bound: BoundSocket | None = None
        self._server: asyncio.Server | None = None

    async def start(self, run_dir: Path) -> None:
        self._bound = await asyncio.to_thread(bind_socket, run_dir, MASTER_NAME, _BACKLOG)
        # A duplicate, because asyncio closes the socket that it serves, but kctl must remove the file before that.
        self._server = await asyncio.start_unix_server(self._accepted, sock=self._bound.socket.dup(), backlog=_BACKLOG)

    async def close(self) -> None:
        """Removes the socket, then ends every connection."""
        if self._bound is not None:
            await asyncio.to_thread(self._bound.close)
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            pid, uid, _ = peer_credentials(cast(socket.socket, writer.get_extra_info("socket")))
            refusal = self._refusal(uid)
            if refusal is not None:
                await self._write(writer, reply_error(None, refusal))
            else:
                await self._serve(reader, writer, Caller(uid, pid))
        except (OSError, TimeoutError, BrokenFrame):
            pass  # the caller has gone, sent nothing for too long, or does not read
        except asyncio.CancelledError:
            pass  # close() ends the connections; asyncio's stream callback would log a cancelled task as a failure
        except Exception:
            log.exception("action=connection_failed")
        finally:
            self._connections.discard(task)
            # A caller that does not read would keep a closing transport, and its buffer, forever.
            if writer.transport.get_write_buffer_size() > 0:
                writer.transport.abort()
            writer.close()

    def _refusal(self, uid: int) -> AgentError | None:
        if not is_permitted(uid):
            log.warning("action=refused uid=%d", uid)
            return NotPermitted("this socket serves its own user and root only")
        if len(self._connections) > self._limits.max_connections:
            return Busy(f"{self._limits.max_connections} connections are open already, try again")
        return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, caller: Caller) -> None:
        decoder = Decoder(MAX_REQUEST_BYTES)
        loop = asyncio.get_running_loop()
        frame_deadline: float | None = None
        while True:
            deadline = frame_deadline or loop.time() + self._limits.idle_timeout_seconds
            async with asyncio.timeout_at(deadline):
                data = await reader.read(64 * 1024)
            if not data:
                decoder.end()
                return
            try:
                frames = decoder.feed(data)
            except WireError as error:
                await self._write(writer, reply_error(None, error))
                return
            for frame in frames:
                await self._write(writer, await self._reply(frame, caller))
            if decoder.at_boundary:
                frame_deadline = None
            elif frames or frame_deadline is None:
                frame_deadline = loop.time() + self._limits.frame_timeout_seconds
            if decoder.error is not None:
                await self._write(writer, reply_error(None, decoder.error))
                return

    async def _reply(self, frame: JsonObject, caller: Caller) -> JsonObject:
        try:
            request = Request.parse(frame)
            return await self._answer(request, caller)
        except Exception as error:
            if isinstance(error, KctlError | AgentError) and not isinstance(error, PathError):  # paths stay inside
                return reply_error(readable_id(frame), error)
            log.exception("action=command_failed")
            return reply_error(readable_id(frame), CommandFailed("the master could not answer; its log has the reason"))

    async def _write(self, writer: asyncio.StreamWriter, reply: JsonObject) -> None:
        try:
            frame = encode(reply)
        except FrameTooLarge as error:
            frame = encode(reply_error(readable_id(reply), error))
        writer.write(frame)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(self._limits.write_timeout_seconds):
                await writer.drain()
