from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from kctl.master.control.server import ControlServer, SocketLimits
from kctl.master.operations import base
from kctl.rpc.client import Reply
from kctl_agent.errors import BadParams, PathError
from kctl_agent.rpc.messages import Request, reply_ok
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, JsonObject, encode
from tests.caller import Caller
from tests.conformance.sockets import Sockets


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


class ServedMaster:
    large = encode({"role": 0, "rpc": "large", "method": "getX"})

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / "master.sock"
        self._loop, self._to_close = asyncio.new_event_loop(), ExitStack()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def serve(self, **limits: Any) -> None:
        self._server = ControlServer(answer, SocketLimits(**limits))
        self._run(self._server.start(self.path.parent))

    def connect(self) -> Caller:
        return self._to_close.enter_context(Caller(self.path))

    def stop(self) -> None:
        self._run(self._server.close())

    def is_answer(self, rpc: str, reply: Reply) -> bool:
        return bool(reply.result == {"rpc": rpc})

    def are_counted(self, *mistakes: str) -> bool:
        """The server counts no connections; it drops a peer that does not read."""
        return mistakes != ("a peer did not read its reply",) or len(self._server._connections) == 1

    def close(self) -> None:
        self._to_close.close()
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(30)


@pytest.fixture
def served(short_dir: Path) -> Iterator[ServedMaster]:
    with closing(ServedMaster(short_dir)) as made:
        yield made


class TestSocket(Sockets): ...


def test_a_failure_hides_its_cause_and_keeps_the_connection(served: ServedMaster) -> None:
    served.serve()
    caller = served.connect()

    for rpc, role, code in (
        ("ping", 9, "bad_request"),
        ("refuses", 0, "bad_params"),
        ("breaks", 0, "command_failed"),
        ("path", 0, "command_failed"),
        ("too_large", 0, "frame_too_large"),
    ):
        caller.send(encode({"id": "5", "role": role, "rpc": rpc, "method": "getX"}))
        failed = caller.read()
        assert failed.error is not None
        assert (failed.id, failed.error.code, caller.ask("ping").ok) == ("5", code, True), rpc
        assert "secret" not in failed.error.message
