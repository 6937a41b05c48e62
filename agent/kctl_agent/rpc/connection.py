"""One peer of the agent: bytes in, replies out in the order of requests.

Non-blocking: the server's loop calls `on_event`, and drops the connection when it returns False or `deadline` has
passed. Memory per peer is bounded by one receive, one batch of replies and the reply that overfilled it.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kctl_agent.errors import AgentError, WireError
from kctl_agent.rpc.dispatch import FaultCounters
from kctl_agent.rpc.messages import reply_error
from kctl_agent.rpc.wire import MAX_REQUEST_BYTES, Decoder, JsonObject, encode

IN: Final = select.EPOLLIN
OUT: Final = select.EPOLLOUT

_RECEIVE_BYTES: Final = 1 << 16
_BATCH_BYTES: Final = 1 << 16
_LINGER_SECONDS: Final = 1.0
_NO_SIGNAL: Final = socket.MSG_NOSIGNAL  # the host process may have its own idea of SIGPIPE


@dataclass(frozen=True, slots=True)
class AgentService:
    reply_to: Callable[[JsonObject, float], bytes]
    faults: FaultCounters
    epoll: select.epoll
    frame_timeout_seconds: float
    idle_timeout_seconds: float


class AcceptedConnection:
    """An accepted socket, dropped at `deadline` (monotonic) if nothing happens before."""

    __slots__ = ("_decoder", "_is_ending", "_out", "_peer_is_done", "_service", "_waiting", "deadline", "fd", "socket")

    def __init__(self, accepted: socket.socket, service: AgentService, now: float) -> None:
        accepted.setblocking(False)
        self.socket = accepted
        self.fd = accepted.fileno()
        self.deadline = now + service.idle_timeout_seconds
        self._service = service
        self._decoder = Decoder(MAX_REQUEST_BYTES)
        self._waiting: deque[JsonObject | AgentError] = deque()  # answered once `_out` is sent
        self._out = bytearray()
        self._is_ending = False  # the last reply is in `_waiting` or sent; further input is dropped
        self._peer_is_done = False

    def on_event(self, mask: int, now: float) -> bool:
        """False: the connection is over. Raises OSError if the peer is gone."""
        if mask & OUT:
            return self._flush(now)
        if self._out:  # not writable while a reply is pending: a hang-up
            return False
        data = self.socket.recv(_RECEIVE_BYTES)
        if not data or self._is_ending:
            return self._read_end(data, now)
        decoder, service = self._decoder, self._service
        had_half = not decoder.at_boundary
        try:
            frames = decoder.feed(data)
        except WireError:
            frames = []
        if len(frames) == 1 and decoder.error is None:  # nearly always
            self._send(service.reply_to(frames[0], now), now)
        else:
            self._waiting.extend(frames)
            if decoder.error is not None:
                service.faults.note(f"a malformed frame ({decoder.error.code})")
                return self.refuse(decoder.error, now)
            self._advance(now)
        if not self._out and (frames or not had_half):
            self._wait_for_more(now)
        return True

    def refuse(self, error: AgentError, now: float) -> bool:
        self._is_ending = True
        self._waiting.append(error)
        try:
            return self._advance(now)
        except OSError:
            return False

    def note_deadline(self) -> None:
        if self._out:
            self._service.faults.note("a peer did not read its reply")
        elif not self._is_ending and not self._decoder.at_boundary:
            self._service.faults.note("half a frame and silence")

    def _read_end(self, data: bytes, now: float) -> bool:
        if data or self._is_ending:
            return bool(data)
        self._peer_is_done = True
        if not self._decoder.at_boundary:
            self._service.faults.note("a peer closed inside a frame")
        return self._advance(now)

    def _wait_for_more(self, now: float) -> None:
        """The frame time-out runs from the first byte of a frame; the idle time-out runs between frames."""
        service = self._service
        is_idle = self._decoder.at_boundary
        self.deadline = now + (service.idle_timeout_seconds if is_idle else service.frame_timeout_seconds)

    def _advance(self, now: float) -> bool:
        waiting = self._waiting
        while waiting and not self._out:
            batch, size = [], 0
            while waiting and size < _BATCH_BYTES:
                item = waiting.popleft()
                if isinstance(item, AgentError):
                    reply = encode(reply_error(None, item))
                else:
                    reply = self._service.reply_to(item, now)
                batch.append(reply)
                size += len(reply)
            self._send(b"".join(batch), now)
        if self._out:
            return True
        if self._is_ending:
            # Not close(): that resets a peer which is still sending, and it would never read the reason.
            self.socket.shutdown(socket.SHUT_WR)
            self.deadline = now + _LINGER_SECONDS
        return not self._peer_is_done

    def _send(self, data: bytes, now: float) -> None:
        try:
            sent = self.socket.send(data, _NO_SIGNAL)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self._out += memoryview(data)[sent:]
            self._service.epoll.modify(self.fd, OUT)
            self.deadline = now + self._service.frame_timeout_seconds

    def _flush(self, now: float) -> bool:
        with memoryview(self._out) as view:
            sent = self.socket.send(view, _NO_SIGNAL)
        del self._out[:sent]
        self.deadline = now + self._service.frame_timeout_seconds
        if self._out:
            return True
        self._service.epoll.modify(self.fd, IN)
        self._wait_for_more(now)
        return self._advance(now)
