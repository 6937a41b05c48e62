"""uvicorn's HTTP/1.1 connection with the bounds it lacks: how many, how long a request may take to arrive, how long a
caller may leave its answer unread. And errors in our shape before there is a request to answer."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kctl.http.errors import HeadersTooLarge, RequestTooSlow, error_body
from kctl_agent.errors import BadRequest, Busy

__all__ = ["BoundedProtocol"]

MAX_CONNECTIONS = 256
REQUEST_SECONDS = 10.0
"""From the connection, or the first byte of a further request, to the end of its headers."""
UNREAD_SECONDS = 30.0

_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Busy"}


class BoundedProtocol(H11Protocol):
    """One connection, on the event loop."""

    max_connections = MAX_CONNECTIONS
    request_seconds = REQUEST_SECONDS
    unread_seconds = UNREAD_SECONDS

    _request_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._refuse(503, error_body(Busy.code, f"{self.max_connections} connections are open already", True))
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._request_timer)
        self._stop(self._unread_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop(self._request_timer)
            self._request_timer = None
        elif self._request_timer is None:
            self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_timer = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop(self._unread_timer)
        super().resume_writing()

    def send_400_response(self, _msg: str) -> None:
        if self._is_too_large():
            self._refuse(431, error_body(HeadersTooLarge.code, "request line and headers are too large", False))
        else:
            self._refuse(400, error_body(BadRequest.code, "this is no HTTP request", False))

    def _is_too_large(self) -> bool:
        return len(self.conn.trailing_data[0]) > (self.config.h11_max_incomplete_event_size or 16 * 1024)

    def _expect_request(self) -> None:
        self._request_timer = self.loop.call_later(self.request_seconds, self._request_is_late)

    def _request_is_late(self) -> None:
        self._request_timer = None
        if self.transport.is_closing() or self.conn.their_state is not h11.IDLE:
            return
        message = f"the request was not there within {self.request_seconds:g} s"
        self._refuse(408, error_body(RequestTooSlow.code, message, True))

    def _refuse(self, status: int, body: bytes) -> None:
        """Written past h11, whose state machine may be in any state here; then the connection ends."""
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
