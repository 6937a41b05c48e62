"""`ScriptedAgent`: an agent that follows a test's script, well or badly, over a real socket and the real wire.

For tests of whatever talks to agents, users' own included. A script holds for each command what happens when asked:

    with ScriptedAgent(run_dir, "worker-0", {"kafka_lag": [Answers({"rows": []}), BreaksFrame()]}) as agent:
        ...                       # the first call is answered, every later one gets half a frame and an end
        assert [request.rpc for request in agent.requests] == ["kafka_lag"]

It is one thread; socket, stale detection and framing are those of `kctl_agent.paths` and `kctl_agent.rpc.wire`.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from kctl_agent.errors import AgentError, CommandFailed, UnknownMethod, WireError
from kctl_agent.paths import bind_socket, prepare_run_dir
from kctl_agent.rpc.messages import Request, reply_error, reply_ok
from kctl_agent.rpc.wire import MAX_REQUEST_BYTES, Decoder, JsonObject, encode
from kctl_agent.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Answers", "BreaksFrame", "Refuses", "ScriptedAgent", "SendsBytes", "Stalls", "Step", "Vanishes"]

_POLL_SECONDS: Final = 0.005  # how often a stalled reply checks its event
_SEND_SECONDS: Final = 10.0
_CLOSE: Final = b"c"
_VANISH: Final = b"v"


@dataclass(frozen=True, slots=True)
class Answers:
    """A good reply. `result` may be made from the request."""

    result: JsonObject | Callable[[Request], JsonObject] = field(default_factory=dict)
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Refuses:
    """An error reply."""

    error: AgentError = field(default_factory=lambda: CommandFailed("as scripted"))


@dataclass(frozen=True, slots=True)
class BreaksFrame:
    """The first half of a good reply, then the end of the connection."""

    result: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SendsBytes:
    """These bytes instead of a reply; the connection stays."""

    data: bytes = b"\x00\x00\x00\x05NaN{}"


@dataclass(frozen=True, slots=True)
class Vanishes:
    """Every connection and the listener end at once, the socket file stays: as after a SIGKILL. See `vanish`."""


@dataclass(frozen=True, slots=True)
class Stalls:
    """Nothing, until the event is set or the seconds are over; with neither, for ever. Then the next step is taken."""

    until: threading.Event | None = None
    seconds: float | None = None
    then: Answers | Refuses | BreaksFrame | SendsBytes | Vanishes = field(default_factory=Answers)


Step: TypeAlias = Answers | Refuses | BreaksFrame | SendsBytes | Vanishes | Stalls


class _Peer:
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.decoder = Decoder(MAX_REQUEST_BYTES)
        self.waiting: deque[Request] = deque()
        self.stalled: Stalls | None = None
        self.stalled_since = 0.0


class ScriptedAgent:
    """Serves `run_dir`/`name`.sock by a script: command name -> step, or steps for the 1st, 2nd and every later call.

    `ping` is answered unless scripted; what is not in the script is an unknown method. `requests` holds every request
    received so far, in order.

    Raises (start):
        PathError: the socket cannot be made there.
    """

    def __init__(self, run_dir: Path, name: str, script: Mapping[str, Step | Sequence[Step]]) -> None:
        self.name = name
        self.requests: list[Request] = []
        self._run_dir = run_dir
        ping = Answers({"name": name, "pid": os.getpid(), "version": __version__})
        self._script = {
            rpc: deque(steps if isinstance(steps, Sequence) else [steps])
            for rpc, steps in {"ping": ping, **script}.items()
        }
        self._peers: set[_Peer] = set()
        self._has_vanished = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"scripted {name}", daemon=True)

    def start(self) -> None:
        """Listen; when it returns, a caller is served."""
        prepare_run_dir(self._run_dir)
        self._bound = bind_socket(self._run_dir, self.name, backlog=64)
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._bound.socket, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()

    def vanish(self) -> None:
        """Be gone as after a SIGKILL, from the test's side: nobody listens, the file stays and may be replaced."""
        self._wake.send(_VANISH)
        self._has_vanished.wait()

    def close(self) -> None:
        """End everything and remove the socket file, unless the agent has vanished. Idempotent."""
        with suppress(OSError):
            self._wake.send(_CLOSE)
        self._thread.join()
        self._wake.close()
        self._bound.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        is_open = True
        while is_open:
            has_stalled = any(peer.stalled for peer in self._peers)
            for key, _ in self._selector.select(_POLL_SECONDS if has_stalled else None):
                if key.fileobj is self._woken:
                    is_open = self._woken.recv(1) != _CLOSE
                    if is_open:
                        self._vanish()
                elif key.fileobj is self._bound.socket:
                    self._accept()
                elif key.data in self._peers:
                    self._read(key.data)
            for peer in [peer for peer in self._peers if peer.stalled]:
                self._answer_peer(peer)
        for peer in list(self._peers):
            self._drop(peer)
        self._selector.close()
        self._woken.close()

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._bound.socket.accept()
            connection.settimeout(_SEND_SECONDS)
            peer = _Peer(connection)
            self._peers.add(peer)
            self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.socket.recv(1 << 16)
            frames = peer.decoder.feed(data) if data else None
            requests = None if frames is None else [Request.parse(frame) for frame in frames]
        except (OSError, WireError, AgentError):
            requests = None
        if requests is None:
            self._drop(peer)
            return
        self.requests += requests
        peer.waiting.extend(requests)
        self._answer_waiting(peer)

    def _answer_waiting(self, peer: _Peer) -> None:
        while peer.waiting and peer.stalled is None and peer in self._peers:
            steps = self._script.get(peer.waiting[0].rpc)
            if steps is None:
                self._take(peer, Refuses(UnknownMethod("the script has no such command")))
            else:
                self._take(peer, steps.popleft() if len(steps) > 1 else steps[0])

    def _answer_peer(self, peer: _Peer) -> None:
        stalled = peer.stalled
        if stalled is None:
            return
        is_set = stalled.until is not None and stalled.until.is_set()
        is_over = stalled.seconds is not None and monotonic() - peer.stalled_since >= stalled.seconds
        if is_set or is_over:
            peer.stalled = None
            self._take(peer, stalled.then)
            self._answer_waiting(peer)

    def _take(self, peer: _Peer, step: Step) -> None:
        """Do one step for the peer's oldest request."""
        if isinstance(step, Stalls):
            peer.stalled, peer.stalled_since = step, monotonic()
            return
        request = peer.waiting.popleft()
        match step:
            case Answers(result, age_seconds):
                made = result(request) if callable(result) else result
                self._send(peer, encode(reply_ok(request.id, made, self.name, age_seconds)))
            case Refuses(error):
                self._send(peer, encode(reply_error(request.id, error)))
            case SendsBytes(data):
                self._send(peer, data)
            case BreaksFrame(result):
                frame = encode(reply_ok(request.id, result, self.name, 0.0))
                self._send(peer, frame[: len(frame) // 2])
                self._drop(peer)
            case Vanishes():
                self._vanish()

    def _send(self, peer: _Peer, data: bytes) -> None:
        try:
            peer.socket.sendall(data, socket.MSG_NOSIGNAL)
        except OSError:
            self._drop(peer)

    def _vanish(self) -> None:
        """As the kernel does for a killed process: its descriptors close, its files stay."""
        if not self._has_vanished.is_set():
            self._selector.unregister(self._bound.socket)
            self._bound.socket.close()
            # This process lives on; without its record the socket file is as stale as that of a dead one.
            self._bound.path.with_suffix(".pid").unlink(missing_ok=True)
        for peer in list(self._peers):
            self._drop(peer)
        self._has_vanished.set()

    def _drop(self, peer: _Peer) -> None:
        if peer in self._peers:
            self._peers.discard(peer)
            self._selector.unregister(peer.socket)
            peer.socket.close()
