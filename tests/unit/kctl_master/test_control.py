"""master.sock and every way a caller can misbehave; over a real socket, with an answer of the test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kctl.master.control.server import ControlServer, SocketLimits
from kctl.master.operations import base
from kctl.rpc.client import Reply, reply_of
from kctl_agent.errors import BadParams, PathError
from kctl_agent.rpc.messages import Request, Role, reply_ok
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Decoder, JsonObject, encode, json_text

pytestmark = pytest.mark.anyio

ASK = encode(Request(Role.EXTERNAL, "ping", "getPing", id="1").to_json())
TIGHT = SocketLimits(max_connections=2, frame_timeout_seconds=0.2, idle_timeout_seconds=0.4, write_timeout_seconds=0.2)


async def answer(request: Request, _caller: base.Caller) -> JsonObject:
    match request.rpc:
        case "refuses":
            raise BadParams("not like that")
        case "breaks":
            raise RuntimeError("/secret/path")
        case "path":
            raise PathError("/secret/path cannot be read")
        case "large":
            return reply_ok(request.id, {"text": "x" * (1 << 20)}, "master", 0.0)
        case "too_large":
            return reply_ok(request.id, {"text": "x" * MAX_REPLY_BYTES}, "master", 0.0)
    return reply_ok(request.id, {"rpc": request.rpc}, "master", 0.0)


@contextlib.asynccontextmanager
async def serving(run_dir: Path, limits: SocketLimits | None = None) -> AsyncIterator[ControlServer]:
    server = ControlServer(answer, limits)
    await server.start(run_dir)
    try:
        yield server
    finally:
        await server.close()


class Caller:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._decoder = Decoder(MAX_REPLY_BYTES)
        self._frames: list[JsonObject] = []

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, rpc: str, **more: Any) -> Reply:
        await self.send(encode({"role": 0, "rpc": rpc, "method": "getX", **more}))
        return await self.reply()

    async def reply(self) -> Reply:
        async with asyncio.timeout(10):
            while not self._frames:
                data = await self.reader.read(65536)
                assert data, "closed without a reply"
                self._frames += self._decoder.feed(data)
        return reply_of(json_text(self._frames.pop(0)).encode())

    async def is_closed(self) -> bool:
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read() == b""
        return True


@contextlib.asynccontextmanager
async def calling(run_dir: Path) -> AsyncIterator[Caller]:
    reader, writer = await asyncio.open_unix_connection(str(run_dir / "master.sock"))
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()


async def test_a_caller_that_sends_only_role_rpc_and_method_is_served(short_dir: Path) -> None:
    async with serving(short_dir), calling(short_dir) as caller:
        reply = await caller.ask("kafka_lag")

    assert (reply.ok, reply.id, reply.result) == (True, None, {"rpc": "kafka_lag"})


async def test_pipelined_requests_are_answered_in_order_with_their_ids(short_dir: Path) -> None:
    requests = [Request(Role.EXTERNAL, f"rpc{n}", "getX", id=str(n)) for n in range(50)]
    async with serving(short_dir), calling(short_dir) as caller:
        await caller.send(b"".join(encode(request.to_json()) for request in requests))
        replies = [await caller.reply() for _ in requests]

    assert [(reply.id, reply.result["rpc"]) for reply in replies] == [(str(n), f"rpc{n}") for n in range(50)]


async def test_a_bad_request_is_answered_by_its_id_and_the_connection_goes_on(short_dir: Path) -> None:
    async with serving(short_dir), calling(short_dir) as caller:
        await caller.send(encode({"id": "7", "role": 9, "rpc": "ping", "method": "getPing"}))
        bad = await caller.reply()
        good = await caller.ask("ping")

    assert bad.error is not None
    assert (bad.id, bad.error.code, good.ok) == ("7", "bad_request", True)


@pytest.mark.parametrize(
    ("rpc", "code"),
    [
        ("refuses", "bad_params"),
        ("breaks", "command_failed"),
        ("path", "command_failed"),
        ("too_large", "frame_too_large"),
    ],
)
async def test_a_failure_is_answered_without_its_inside_and_the_connection_goes_on(
    short_dir: Path, rpc: str, code: str
) -> None:
    async with serving(short_dir), calling(short_dir) as caller:
        failed = await caller.ask(rpc, id="5")
        good = await caller.ask("ping")

    assert failed.error is not None
    assert (failed.id, failed.error.code, good.ok) == ("5", code, True)
    assert "secret" not in failed.error.message


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ((MAX_REQUEST_BYTES + 1).to_bytes(4, "big"), "frame_too_large"),
        (b"\x00\x00\x00\x03abc", "bad_payload"),
        (b"\x00\x00\x00\x02[]", "bad_payload"),
    ],
)
async def test_a_malformed_frame_is_reported_and_closed_at_its_turn(short_dir: Path, data: bytes, code: str) -> None:
    async with serving(short_dir), calling(short_dir) as other, calling(short_dir) as caller:
        await caller.send(ASK + data)
        good, bad = await caller.reply(), await caller.reply()

        assert good.ok
        assert bad.error is not None
        assert bad.error.code == code
        assert await caller.is_closed()
        assert (await other.ask("ping")).ok


async def test_half_a_frame_and_silence_is_closed_at_the_deadline(short_dir: Path) -> None:
    async with serving(short_dir, TIGHT), calling(short_dir) as caller:
        await caller.send(ASK[:-3])

        assert await caller.is_closed()


async def test_a_silent_caller_is_closed_after_the_idle_time(short_dir: Path) -> None:
    async with serving(short_dir, TIGHT), calling(short_dir) as caller:
        assert (await caller.ask("ping")).ok

        assert await caller.is_closed()


async def test_a_caller_that_does_not_read_is_closed(short_dir: Path) -> None:
    request = encode({"role": 0, "rpc": "large", "method": "getX"})
    async with serving(short_dir, TIGHT) as server, calling(short_dir) as caller:
        assert (await caller.ask("ping")).ok
        caller.writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        caller.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await caller.send(request * 8)
        async with asyncio.timeout(10):
            while server._connections:  # noqa: ASYNC110 - the server notifies nobody
                await asyncio.sleep(0.01)


async def test_more_callers_than_the_bound_get_busy(short_dir: Path) -> None:
    async with serving(short_dir, TIGHT), calling(short_dir) as first, calling(short_dir) as second:
        assert (await first.ask("ping")).ok
        assert (await second.ask("ping")).ok

        async with calling(short_dir) as third:
            refused = await third.reply()
            assert refused.error is not None
            assert (refused.error.code, refused.error.retriable) == ("busy", True)
            assert await third.is_closed()


async def test_the_socket_is_gone_and_its_callers_are_closed_at_the_end(short_dir: Path) -> None:
    async with serving(short_dir) as server, calling(short_dir) as caller:
        assert (await caller.ask("ping")).ok
        await server.close()

        assert await caller.is_closed()
        assert os.listdir(short_dir) == []
