"""`ScriptedServer`, the base of `ScriptedAgent` and `ScriptedBroker`, and the steps of a script."""

import selectors
import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from kctl_agent.errors import AgentError, CommandFailed

R = TypeVar("R")

_POLL_SECONDS: Final = 0.005  # how often a stalled reply checks its event
_SEND_SECONDS: Final = 10.0
_CLOSE: Final = b"c"
_VANISH: Final = b"v"


@dataclass(frozen=True, slots=True)
class Answers:
    """A callable makes `result` from the request. A broker's result is its response's fields, with defaults for the
    others."""

    result: Mapping[str, Any] | Callable[[Any], Mapping[str, Any]] = field(default_factory=dict)
    age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Refuses:
    error: AgentError = field(default_factory=lambda: CommandFailed("as scripted"))


@dataclass(frozen=True, slots=True)
class BreaksFrame:
    """Sends the first half of a good answer, then ends the connection."""

    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SendsBytes:
    """Sends these bytes instead of an answer, and keeps the connection."""

    data: bytes = b"\x00\x00\x00\x05NaN{}"


@dataclass(frozen=True, slots=True)
class HangsUp:
    """Ends the connection without a byte."""


@dataclass(frozen=True, slots=True)
class Vanishes:
    """Ends all connections and the listener at once, as a SIGKILL does; see `ScriptedServer.vanish`."""


@dataclass(frozen=True, slots=True)
class Stalls:
    """Sends nothing until the event is set or the seconds are over, or for ever without either. Then takes the next
    step."""

    until: threading.Event | None = None
    seconds: float | None = None
    then: Answers | Refuses | BreaksFrame | SendsBytes | HangsUp | Vanishes = field(default_factory=Answers)


Step: TypeAlias = Answers | Refuses | BreaksFrame | SendsBytes | HangsUp | Vanishes | Stalls


class _Peer(Generic[R]):
    def __init__(self, connection: socket.socket, decode: Callable[[bytes], Sequence[R]]) -> None:
        self.socket = connection
        self.decode = decode
        self.waiting: deque[R] = deque()
        self.stalled: Stalls | None = None
        self.stalled_since = 0.0


class ScriptedServer(ABC, Generic[R]):
    """Serves a script, which maps what a request is for to a step, or to steps for the 1st, 2nd and every later call.
    One thread serves. `requests` has all requests received so far, in order."""

    def __init__(self, name: str, script: Mapping[str, Step | Sequence[Step]]) -> None:
        self.requests: list[R] = []
        self._script = {
            about: deque(steps if isinstance(steps, Sequence) else [steps]) for about, steps in script.items()
        }
        self._peers: set[_Peer[R]] = set()
        self._has_vanished = threading.Event()
        self._mistake: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"scripted {name}", daemon=True)

    @abstractmethod
    def _listen(self) -> socket.socket:
        """The listening socket."""

    @abstractmethod
    def _decoder(self) -> Callable[[bytes], Sequence[R]]:
        """Decodes one connection's bytes into requests. If it raises OSError, ValueError or AgentError, the connection
        ends."""

    @abstractmethod
    def _about(self, request: R) -> str:
        """The script's key for this request."""

    @abstractmethod
    def _answer(self, request: R, step: Answers | Refuses) -> bytes:
        """The frame of an answer."""

    def _when_unknown(self) -> Answers | Refuses | HangsUp:
        return HangsUp()

    def _close_listener(self) -> None:
        self._listener.close()

    def _stopped_listening(self) -> None:
        """Called in the server's thread when the listener has vanished."""

    def start(self) -> None:
        self._listener = self._listen()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()

    def vanish(self) -> None:
        self._wake.send(_VANISH)
        self._has_vanished.wait()

    def close(self) -> None:
        """Raises what a callable of the script has raised, or ValueError or TypeError for what cannot be sent.
        Idempotent."""
        with suppress(OSError):
            self._wake.send(_CLOSE)
        self._thread.join()
        self._wake.close()
        self._close_listener()
        if self._mistake is not None:
            mistake, self._mistake = self._mistake, None
            raise mistake

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
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
                elif key.fileobj is self._listener:
                    self._accept()
                elif key.data in self._peers:
                    self._read(key.data)
            for peer in [peer for peer in self._peers if peer.stalled]:
                self._resume(peer)
        for peer in list(self._peers):
            self._drop(peer)
        self._selector.close()
        self._woken.close()

    def _accept(self) -> None:
        with suppress(OSError):
            connection, _ = self._listener.accept()
            connection.settimeout(_SEND_SECONDS)
            peer = _Peer(connection, self._decoder())
            self._peers.add(peer)
            self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer[R]) -> None:
        try:
            data = peer.socket.recv(1 << 16)
            requests = peer.decode(data) if data else None
        except (OSError, ValueError, AgentError):
            requests = None
        if requests is None:
            self._drop(peer)
            return
        self.requests += requests
        peer.waiting.extend(requests)
        self._answer_waiting(peer)

    def _answer_waiting(self, peer: _Peer[R]) -> None:
        # In order, because a stalling request delays later ones on this connection.
        while peer.waiting and peer.stalled is None and peer in self._peers:
            steps = self._script.get(self._about(peer.waiting[0]))
            if steps is None:
                self._guarded(peer, self._when_unknown())
            else:
                self._guarded(peer, steps.popleft() if len(steps) > 1 else steps[0])

    def _resume(self, peer: _Peer[R]) -> None:
        stalled = peer.stalled
        if stalled is None:
            return
        is_set = stalled.until is not None and stalled.until.is_set()
        is_over = stalled.seconds is not None and monotonic() - peer.stalled_since >= stalled.seconds
        if is_set or is_over:
            peer.stalled = None
            self._guarded(peer, stalled.then)
            self._answer_waiting(peer)

    def _guarded(self, peer: _Peer[R], step: Step) -> None:
        """Runs a step so that a mistake in a script fails its test directly, not by the client's time-out."""
        try:
            self._take(peer, step)
        except Exception as error:
            self._mistake = self._mistake or error
            self._drop(peer)

    def _take(self, peer: _Peer[R], step: Step) -> None:
        if isinstance(step, Stalls):
            peer.stalled, peer.stalled_since = step, monotonic()
            return
        request = peer.waiting.popleft()
        match step:
            case Answers() | Refuses():
                self._send(peer, self._answer(request, step))
            case SendsBytes(data):
                self._send(peer, data)
            case BreaksFrame(result):
                frame = self._answer(request, Answers(result))
                self._send(peer, frame[: len(frame) // 2])
                self._drop(peer)
            case HangsUp():
                self._drop(peer)
            case Vanishes():
                self._vanish()

    def _send(self, peer: _Peer[R], data: bytes) -> None:
        try:
            peer.socket.sendall(data, socket.MSG_NOSIGNAL)
        except OSError:
            self._drop(peer)

    def _vanish(self) -> None:
        """Closes descriptors and leaves files, as the kernel does for a killed process."""
        if not self._has_vanished.is_set():
            self._selector.unregister(self._listener)
            self._listener.close()
            self._stopped_listening()
        for peer in list(self._peers):
            self._drop(peer)
        self._has_vanished.set()

    def _drop(self, peer: _Peer[R]) -> None:
        if peer in self._peers:
            self._peers.discard(peer)
            self._selector.unregister(peer.socket)
            peer.socket.close()
