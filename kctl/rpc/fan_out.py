"""Sends one request to all agents at once, with one deadline, and names each agent that does not answer."""

import asyncio
import itertools
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Raw, Struct

from kctl.reduce.base import Answer
from kctl.rpc.client import Reply, reply_of
from kctl.rpc.decode import BadResult, decoded
from kctl_agent.errors import AgentError, AgentTimeout, AgentUnreachable, BrokenFrame
from kctl_agent.rpc.messages import Request, Role, wire_method
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, MAX_REQUEST_BYTES, FrameDecoder, JsonObject, encode

_BACKLOG_RETRY_SECONDS = 0.005


class AgentConnection(asyncio.Protocol):
    """A persistent connection to an agent. Requests are pipelined. If the connection ends, pending requests fail."""

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
        """Sends an encoded request and returns a future for the reply. Pending requests must have different ids. If the
        future is cancelled, a late reply is dropped. Raises AgentUnreachable."""
        if not self.is_usable:
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
        if reply.id is None:  # it concerns the connection, so it answers all pending requests
            waiting, self._waiting = list(self._waiting.values()), {}
        else:
            waiting = [future for future in (self._waiting.pop(reply.id, None),) if future is not None]
        for future in waiting:
            if not future.done():
                future.set_result(reply)


async def connect(path: Path, deadline: float) -> AgentConnection:
    """Connects to an agent. `deadline` is in the running loop's time. Raises AgentUnreachable, or AgentTimeout if the
    agent's backlog stays full until `deadline`."""
    loop = asyncio.get_running_loop()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        # Not loop.sock_connect: asyncio takes EAGAIN as "in progress", but a Unix socket means "backlog full" by it.
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


R = TypeVar("R")


class Failed(Struct, frozen=True, rename={"sender": "from"}):
    """An agent that returned no valid result. `code` is an error code, such as `timeout` or `unreachable`."""

    sender: str
    code: str
    message: str

    def to_json(self) -> JsonObject:
        return {"from": self.sender, "code": self.code, "message": self.message}


@dataclass(frozen=True, slots=True)
class FanOut(Generic[R]):
    """All agents' answers. Every agent is in exactly one field. Each field is sorted by name."""

    answers: list[Answer[R]]
    failed: list[Failed]
    stopped: tuple[str, ...] = ()
    """Agents that were stopped by request; only `kctl.master.members` knows them."""


def typed(outcome: FanOut[Raw], kind: type[R]) -> FanOut[R]:
    """Decodes results to `kind`. An agent whose result does not fit counts as failed with `bad_result`. Slow with
    thousands of partitions: call it in a thread."""
    answers: list[Answer[R]] = []
    failed: list[Failed] = []
    for answer in outcome.answers:
        try:
            answers.append(answer.of(decoded(kind, answer.result)))
        except BadResult as error:
            why = f"its reply does not have the fields of this command: {error}"
            failed.append(Failed(answer.sender, error.code, why))
    if failed:
        failed = sorted([*outcome.failed, *failed], key=lambda each: each.sender)
    return FanOut(answers, failed or outcome.failed, outcome.stopped)


class AgentPool:
    """Persistent connections to agents. Use and `close` a pool in the same event loop."""

    def __init__(self) -> None:
        self._connections: dict[Path, AgentConnection] = {}
        self.ids = itertools.count(1)

    def kept(self, path: Path) -> AgentConnection | None:
        connection = self._connections.get(path)
        return connection if connection is not None and connection.is_usable else None

    async def ask(self, path: Path, frame: bytes, request_id: str, deadline: float) -> Reply:
        """Sends a request and returns the reply. Connects if needed. `deadline` limits only the time to connect. Raises
        AgentUnreachable, AgentTimeout or WireError."""
        connection = self.kept(path) or await self._connected(path, deadline)
        return await connection.send(frame, request_id)

    def close(self) -> None:
        """Closes all connections. The event loop finishes this in its next iteration."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _connected(self, path: Path, deadline: float) -> AgentConnection:
        connection = await connect(path, deadline)
        other = self.kept(path)
        if other is not None:  # another question has connected
            connection.close()
            return other
        self._connections[path] = connection
        return connection


async def fan_out(
    pool: AgentPool, targets: Mapping[str, Path], rpc: str, params: JsonObject | None = None, *, deadline: float
) -> FanOut[Raw]:
    """Sends a request to all `targets` (name -> socket) and collects replies until `deadline` (in the running loop's
    time). The request must be repeatable: it is sent again if a pooled connection has broken. Raises FrameTooLarge."""
    loop = asyncio.get_running_loop()
    remaining = deadline - loop.time()
    request_id = f"{next(pool.ids):x}"  # one for all, because it must be unique only on each connection
    frame = _encoded(request_id, rpc, params or {}, remaining)
    waiting, kept = _sent(pool, targets, frame, request_id, deadline)
    outcomes: dict[str, Answer[Raw] | Failed] = {
        name: Failed(name, AgentTimeout.code, "no answer in time") for name in targets
    }
    try:
        while waiting and remaining > 0:
            done, _ = await asyncio.wait(waiting, timeout=remaining, return_when=asyncio.FIRST_EXCEPTION)
            for reply in done:
                name = waiting.pop(reply)
                connection = kept.pop(name, None)
                if reply.exception() is not None and connection is not None and not connection.is_usable:
                    anew = pool.ask(targets[name], frame, request_id, deadline)
                    waiting[asyncio.ensure_future(anew)] = name
                else:
                    outcomes[name] = _sorted_out(name, reply)
            remaining = deadline - loop.time()
    finally:
        for reply in waiting:
            reply.cancel()
    in_order = [outcome for _, outcome in sorted(outcomes.items())]
    return FanOut(
        answers=[outcome for outcome in in_order if isinstance(outcome, Answer)],
        failed=[outcome for outcome in in_order if isinstance(outcome, Failed)],
    )


def _sent(
    pool: AgentPool, targets: Mapping[str, Path], frame: bytes, request_id: str, deadline: float
) -> tuple[dict[asyncio.Future[Reply], str], dict[str, AgentConnection]]:
    waiting: dict[asyncio.Future[Reply], str] = {}
    kept: dict[str, AgentConnection] = {}
    for name, path in targets.items():
        connection = pool.kept(path)
        if connection is not None:  # nearly always, and a task for each would cost more than the question
            kept[name] = connection
            waiting[connection.send(frame, request_id)] = name
        else:
            waiting[asyncio.ensure_future(pool.ask(path, frame, request_id, deadline))] = name
    return waiting, kept


def _encoded(request_id: str, rpc: str, params: JsonObject, seconds: float) -> bytes:
    request = Request(Role.MASTER, rpc, wire_method(rpc), request_id, params, max(int(seconds * 1000), 1))
    return encode(request.to_json(), MAX_REQUEST_BYTES)


def _sorted_out(name: str, reply: asyncio.Future[Reply]) -> Answer[Raw] | Failed:
    error = reply.exception()
    if isinstance(error, AgentError):
        return Failed(name, error.code, str(error))
    received = reply.result()
    if received.error is not None:
        return Failed(name, received.error.code, received.error.message)
    return Answer(name, received.raw, received.age_seconds or 0.0)
