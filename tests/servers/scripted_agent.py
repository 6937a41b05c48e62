"""`ScriptedAgent`: an agent that follows a test's script, well or badly, over a real socket and the real wire.

A script has a step, or several, for each command:

    with ScriptedAgent(run_dir, "worker-0", {"kafka_lag": [Answers({"rows": []}), BreaksFrame()]}) as agent:
        ...                       # it answers the first call, and sends half a frame for every later one
        assert [request.rpc for request in agent.requests] == ["kafka_lag"]

Socket, stale detection and framing are those of `kctl_agent.paths` and `kctl_agent.rpc.wire`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kctl_agent.errors import UnknownMethod
from kctl_agent.paths import bind_socket, prepare_run_dir
from kctl_agent.rpc.messages import Request, reply_error, reply_ok
from kctl_agent.rpc.wire import MAX_REQUEST_BYTES, Decoder, encode
from kctl_agent.version import __version__
from tests.servers.scripted_server import (
    Answers,
    BreaksFrame,
    HangsUp,
    Refuses,
    ScriptedServer,
    SendsBytes,
    Stalls,
    Step,
    Vanishes,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Answers", "BreaksFrame", "HangsUp", "Refuses", "ScriptedAgent", "SendsBytes", "Stalls", "Step", "Vanishes"]


class ScriptedAgent(ScriptedServer[Request]):
    """Serves `run_dir`/`name`.sock. The script has a step, or steps for the 1st, 2nd and every later call, of each
    command.

    `ping` is answered unless scripted. A command that is not in the script is an unknown method. When the agent
    vanishes, the socket file stays, and may be replaced. `close` removes it.
    """

    def __init__(self, run_dir: Path, name: str, script: Mapping[str, Step | Sequence[Step]]) -> None:
        ping = Answers({"name": name, "pid": os.getpid(), "version": __version__})
        super().__init__(name, {"ping": ping, **script})
        self.name = name
        self._run_dir = run_dir

    def _listen(self) -> socket.socket:
        prepare_run_dir(self._run_dir)
        self._bound = bind_socket(self._run_dir, self.name, backlog=64)
        return self._bound.socket

    def _decoder(self) -> Callable[[bytes], Sequence[Request]]:
        decoder = Decoder(MAX_REQUEST_BYTES)
        return lambda data: [Request.parse(frame) for frame in decoder.feed(data)]

    def _about(self, request: Request) -> str:
        return request.rpc

    def _answer(self, request: Request, step: Answers | Refuses) -> bytes:
        if isinstance(step, Refuses):
            return encode(reply_error(request.id, step.error))
        result = step.result(request) if callable(step.result) else step.result
        return encode(reply_ok(request.id, dict(result), self.name, step.age_seconds))

    def _when_unknown(self) -> Refuses:
        return Refuses(UnknownMethod("the script has no such command"))

    def _close_listener(self) -> None:
        self._bound.close()

    def _stopped_listening(self) -> None:
        # This process continues; without its record the socket file is as stale as a dead process's.
        self._bound.path.with_suffix(".pid").unlink(missing_ok=True)
