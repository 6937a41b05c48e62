"""A Kafka broker for tests, `ScriptedBroker`, that follows a script, well or badly, over a real socket and the real
protocol.

For what a real broker cannot be made to do at a given moment: a coordinator that loads its offsets for ever, a leader
that moves between two questions, half a response. A script maps each request to what happens:

    script = {"DescribeGroups": [Answers({"groups": [{"group_id": "billing", "error_code": 14}]}), HangsUp()]}
    with ScriptedBroker(script, topics={"orders": 2}) as broker:
        ...                        # a client of any kind, at broker.address
        assert broker.asked.count("DescribeGroups") == 2

ApiVersions, Metadata and FindCoordinator are answered without a script: the broker knows the requests of its script and
these three, leads all partitions of `topics` and coordinates every group. It is one thread.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from kctl.kafka.protocol.wire import requests as request_classes
from kctl.testing.broker_frames import Fields, RequestFrames, metadata_fields, response_frame

__all__ = [
    "BrokerAnswers",
    "BrokerBreaksFrame",
    "BrokerSendsBytes",
    "BrokerStalls",
    "BrokerVanishes",
    "HangsUp",
    "Script",
    "ScriptedBroker",
    "Step",
]

_POLL_SECONDS: Final = 0.005  # how often a stalled response checks its event
_SEND_SECONDS: Final = 10.0
_CLOSE: Final = b"c"
_VANISH: Final = b"v"


@dataclass(frozen=True, slots=True)
class BrokerAnswers:
    """A step that responds with these fields, which may be made from the request; others have their default."""

    fields: Fields | Callable[[Any], Fields] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerBreaksFrame:
    """A step that sends the first half of a response, then ends the connection."""

    fields: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerSendsBytes:
    """A step that sends these bytes instead of a response; the connection stays."""

    data: bytes = b"HTTP/1.1 400 Bad Request\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HangsUp:
    """A step that ends the connection, without a byte."""


@dataclass(frozen=True, slots=True)
class BrokerVanishes:
    """A step that ends all connections and the listener at once, as after a SIGKILL. See `ScriptedBroker.vanish`."""


@dataclass(frozen=True, slots=True)
class BrokerStalls:
    """A step that sends nothing until the event is set, without one for ever; then the next step is taken."""

    until: threading.Event | None = None
    then: BrokerAnswers | BrokerBreaksFrame | BrokerSendsBytes | HangsUp | BrokerVanishes = field(
        default_factory=BrokerAnswers
    )


Step: TypeAlias = BrokerAnswers | BrokerBreaksFrame | BrokerSendsBytes | HangsUp | BrokerVanishes | BrokerStalls
Script: TypeAlias = Mapping[str, Step | Sequence[Step]]
"""Request name, as in Kafka's documentation -> step, or steps for the 1st, 2nd and every later such request."""


class _Peer:
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.incoming = RequestFrames()
        self.waiting: deque[Any] = deque()
        self.stalled: BrokerStalls | None = None


class ScriptedBroker:
    """A broker on 127.0.0.1 that follows its script.

    `topics` are names with their numbers of partitions; a test with several brokers scripts `Metadata` with
    `metadata_fields`. `versions` are the versions a request is announced with, by default all that kafka-python knows.
    A request that is not announced ends its connection, as with a real broker.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        node_id: int = 1,
        topics: Mapping[str, int] | None = None,
        versions: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self.node_id = node_id
        self.requests: list[Any] = []
        """Every request received so far, as kafka-python's objects, in order."""
        self._topics = dict(topics or {})
        known: Script = {
            "ApiVersions": BrokerAnswers(self._api_versions),
            "Metadata": BrokerAnswers(self._metadata),
            "FindCoordinator": BrokerAnswers(self._coordinators),
            **(script or {}),
        }
        self._script = {name: deque(steps if isinstance(steps, Sequence) else [steps]) for name, steps in known.items()}
        self._versions = {name: (0, request_classes()[name].max_version) for name in known} | dict(versions or {})
        self._peers: set[_Peer] = set()
        self._has_vanished = threading.Event()
        self._mistake: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=f"scripted broker {node_id}", daemon=True)

    @property
    def address(self) -> str:
        """HOST:PORT, known once the broker is started."""
        return f"127.0.0.1:{self._port}"

    @property
    def asked(self) -> list[str]:
        """The names of the requests received so far, in order."""
        return [request.name.removesuffix("Request") for request in list(self.requests)]

    def start(self) -> None:
        """Listens; when it returns, a client is served."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()

    def vanish(self) -> None:
        """Vanishes as after a SIGKILL, from the test's side: connections end, the port refuses."""
        self._wake.send(_VANISH)
        self._has_vanished.wait()

    def close(self) -> None:
        """Ends everything. Idempotent.

        Raises:
            ValueError, TypeError, ...: whatever a callable of the script has raised, or fields that cannot be sent.
        """
        with suppress(OSError):
            self._wake.send(_CLOSE)
        self._thread.join()
        self._wake.close()
        self._listener.close()
        if self._mistake is not None:
            mistake, self._mistake = self._mistake, None
            raise mistake

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
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = _Peer(connection)
            self._peers.add(peer)
            self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.socket.recv(1 << 16)
            found = peer.incoming.feed(data) if data else None
        except (OSError, ValueError):
            found = None
        if found is None:
            self._drop(peer)
            return
        self.requests += found
        peer.waiting.extend(found)
        self._answer_waiting(peer)

    def _answer_waiting(self, peer: _Peer) -> None:
        """Answers in order, as Kafka does: what stalls holds up what was asked after it on this connection."""
        while peer.waiting and peer.stalled is None and peer in self._peers:
            steps = self._script.get(peer.waiting[0].name.removesuffix("Request"))
            if steps is None:
                self._drop(peer)
                return
            self._guarded(peer, steps.popleft() if len(steps) > 1 else steps[0])

    def _resume(self, peer: _Peer) -> None:
        stalled = peer.stalled
        if stalled is not None and stalled.until is not None and stalled.until.is_set():
            peer.stalled = None
            self._guarded(peer, stalled.then)
            self._answer_waiting(peer)

    def _guarded(self, peer: _Peer, step: Step) -> None:
        """Runs a step: a mistake in a script must fail its test by itself, not by a time-out of the client."""
        try:
            self._take(peer, step)
        except Exception as error:
            self._mistake = self._mistake or error
            self._drop(peer)

    def _take(self, peer: _Peer, step: Step) -> None:
        """Does one step for the peer's oldest request."""
        if isinstance(step, BrokerStalls):
            peer.stalled = step
            return
        request = peer.waiting.popleft()
        match step:
            case BrokerAnswers(fields):
                self._send(peer, response_frame(request, fields(request) if callable(fields) else fields))
            case BrokerSendsBytes(data):
                self._send(peer, data)
            case BrokerBreaksFrame(fields):
                frame = response_frame(request, fields)
                self._send(peer, frame[: len(frame) // 2])
                self._drop(peer)
            case HangsUp():
                self._drop(peer)
            case BrokerVanishes():
                self._vanish()

    def _send(self, peer: _Peer, data: bytes) -> None:
        try:
            peer.socket.sendall(data, socket.MSG_NOSIGNAL)
        except OSError:
            self._drop(peer)

    def _vanish(self) -> None:
        if not self._has_vanished.is_set():
            self._selector.unregister(self._listener)
            self._listener.close()
        for peer in list(self._peers):
            self._drop(peer)
        self._has_vanished.set()

    def _drop(self, peer: _Peer) -> None:
        if peer in self._peers:
            self._peers.discard(peer)
            self._selector.unregister(peer.socket)
            peer.socket.close()

    def _api_versions(self, _request: Any) -> Fields:
        classes = request_classes()
        return {
            "api_keys": [
                {"api_key": classes[name].API_KEY, "min_version": low, "max_version": high}
                for name, (low, high) in self._versions.items()
            ]
        }

    def _metadata(self, request: Any) -> Fields:
        leaders = {name: [self.node_id] * count for name, count in self._topics.items()}
        names = None if request.topics is None else [topic.name for topic in request.topics]
        return metadata_fields({self.node_id: self.address}, leaders, names)

    def _coordinators(self, request: Any) -> Fields:
        place = {"node_id": self.node_id, "host": "127.0.0.1", "port": self._port}
        return {**place, "coordinators": [{"key": key, **place} for key in request.coordinator_keys or ()]}
