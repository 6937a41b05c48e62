"""The agent's socket, served by one daemon thread.

The thread also runs in users' applications. So this module needs only the standard library, does not fork, and does
not change signal handlers or the umask.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import KW_ONLY, InitVar, dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final, Self

from kctl_agent.errors import AgentError, Busy, NotPermitted, WireError
from kctl_agent.paths import BoundSocket, bind_socket, is_permitted, peer_credentials, prepare_run_dir
from kctl_agent.rpc.commands import COMMANDS, AgentCommand
from kctl_agent.rpc.dispatch import Dispatcher, FaultCounters, place_of
from kctl_agent.rpc.messages import reply_error
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import MAX_REQUEST_BYTES, Decoder, JsonObject, encode

IN: Final = select.EPOLLIN
OUT: Final = select.EPOLLOUT

_BATCH_BYTES: Final = 1 << 16  # once replies have this size, they are sent before more are made
_LINGER_SECONDS: Final = 1.0
_NO_SIGNAL: Final = socket.MSG_NOSIGNAL  # the host process may have its own idea of SIGPIPE


class AcceptedConnection:
    """An accepted socket. Sends replies in the order of requests. Buffers at most one incomplete request and the
    requests of one `recv`. The server drops the socket if `on_event` returns False, or at `deadline` (monotonic)."""

    __slots__ = ("_decoder", "_is_ending", "_out", "_peer_is_done", "_server", "_waiting", "deadline", "fd", "socket")

    def __init__(self, accepted: socket.socket, server: AgentServer, now: float) -> None:
        accepted.setblocking(False)
        self.socket = accepted
        self.fd = accepted.fileno()
        self.deadline = now + server.idle_timeout_seconds
        self._server = server
        self._decoder = Decoder(MAX_REQUEST_BYTES)
        self._waiting: deque[JsonObject | AgentError] = deque()  # answered once `_out` is sent
        self._out = bytearray()
        self._is_ending = False  # the last reply is in `_waiting` or sent; further input is dropped
        self._peer_is_done = False

    def on_event(self, mask: int, now: float) -> bool:
        """Reads or writes what is ready. Returns False to drop the connection. Raises OSError if the peer left."""
        if mask & OUT:
            return self._flush(now)
        if self._out:  # not writable while a reply is pending: a hang-up
            return False
        data = self.socket.recv(1 << 16)
        if not data or self._is_ending:
            return self._read_end(data, now)
        decoder, server = self._decoder, self._server
        had_half = not decoder.at_boundary
        try:
            frames = decoder.feed(data)
        except WireError:
            frames = []
        if len(frames) == 1 and decoder.error is None:  # nearly always
            self._send(server.reply_to(frames[0], now), now)
        else:
            self._waiting.extend(frames)
            if decoder.error is not None:
                server.faults.note(f"a malformed frame ({decoder.error.code})")
                return self.refuse(decoder.error, now)
            self._advance(now)
        # An incomplete frame's time-out counts from its first byte, so more bytes of it do not extend the deadline.
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
            self._server.faults.note("a peer did not read its reply")
        elif not self._is_ending and not self._decoder.at_boundary:
            self._server.faults.note("an incomplete frame, then silence")

    def _read_end(self, data: bytes, now: float) -> bool:
        if data or self._is_ending:
            return bool(data)
        self._peer_is_done = True
        if not self._decoder.at_boundary:
            self._server.faults.note("a peer closed the connection inside a frame")
        return self._advance(now)

    def _wait_for_more(self, now: float) -> None:
        server = self._server
        is_idle = self._decoder.at_boundary
        self.deadline = now + (server.idle_timeout_seconds if is_idle else server.frame_timeout_seconds)

    def _advance(self, now: float) -> bool:
        waiting = self._waiting
        while waiting and not self._out:
            batch, size = [], 0
            while waiting and size < _BATCH_BYTES:
                item = waiting.popleft()
                if isinstance(item, AgentError):
                    reply = encode(reply_error(None, item))
                else:
                    reply = self._server.reply_to(item, now)
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
            self._server.epoll.modify(self.fd, OUT)
            self.deadline = now + self._server.frame_timeout_seconds

    def _flush(self, now: float) -> bool:
        with memoryview(self._out) as view:
            sent = self.socket.send(view, _NO_SIGNAL)
        del self._out[:sent]
        self.deadline = now + self._server.frame_timeout_seconds
        if self._out:
            return True
        self._server.epoll.modify(self.fd, IN)
        self._wait_for_more(now)
        return self._advance(now)


_LOG: Final = logging.getLogger(__name__)
_ACCEPT_BURST: Final = 64
_LINGER_SLOTS: Final = 64
_PAUSE_SECONDS: Final = 1.0
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(eq=False, repr=False)
class AgentServer:
    """The server of an agent. It drops a connection if a request is incomplete `frame_timeout_seconds` after its first
    byte, or if the peer reads nothing of a reply for the same time. It drops an idle connection after
    `idle_timeout_seconds`. Above `max_connections`, it answers `busy`."""

    run_dir: Path
    name: str
    commands: InitVar[Mapping[str, AgentCommand]] = COMMANDS
    _: KW_ONLY
    max_connections: int = 256
    frame_timeout_seconds: float = 5.0
    idle_timeout_seconds: float = 300.0
    backlog: int = 256

    def __post_init__(self, commands: Mapping[str, AgentCommand]) -> None:
        self.faults = FaultCounters(_LOG, self.name)
        self._dispatcher = Dispatcher(self.name, commands, self.faults)
        self.reply_to = self._dispatcher.reply_to
        self._connections: dict[int, AcceptedConnection] = {}
        self._sweep_at = inf  # never later than the earliest deadline; may be earlier
        self._is_accepting = True
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._bound: BoundSocket
        self.epoll: select.epoll
        self._wake_fd: int

    def publish(self, snapshot: Snapshot) -> None:
        """Replaces the snapshot. Thread-safe."""
        self._dispatcher.snapshot = snapshot

    def start(self) -> None:
        """Starts serving, and returns when callers can connect. Raises PathError, or RuntimeError if started before."""
        if self._thread is not None:
            raise RuntimeError(f"agent {self.name} was started before: make a new one")
        prepare_run_dir(self.run_dir)
        with _FORK_LOCK:
            self._bound = bind_socket(self.run_dir, self.name, self.backlog)
            self.epoll = select.epoll()
            self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            _SERVERS.add(self)
        self.epoll.register(self._bound.socket.fileno(), IN)
        self.epoll.register(self._wake_fd, IN)
        self._thread = threading.Thread(target=self._run, name=f"kctl-agent {self.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving and removes the socket's file. Idempotent. Must not be called by the server's thread."""
        with _FORK_LOCK:
            thread = self._thread
            if thread is None:  # never started, or inherited by a fork
                return
            if self in _SERVERS and not self._is_closing:
                self._is_closing = True
                os.eventfd_write(self._wake_fd, 1)
        thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        connections, poll, listener_fd = self._connections, self.epoll.poll, self._bound.socket.fileno()
        try:
            while True:
                wait_seconds = self._sweep_at - monotonic()
                events = poll(None if wait_seconds == inf else wait_seconds if wait_seconds > 0.0 else 0.0)
                if self._is_closing:
                    return
                now = monotonic()
                for fd, mask in events:
                    connection = connections.get(fd)
                    if connection is not None:
                        self._serve(connection, mask, now)
                    elif fd == listener_fd:
                        self._accept(now)
                if now >= self._sweep_at:
                    self._sweep(now)
        except Exception:
            _LOG.exception("agent %s: its thread has failed and no longer answers", self.name)
        finally:
            with _FORK_LOCK:
                self._release()

    def _serve(self, connection: AcceptedConnection, mask: int, now: float) -> None:
        try:
            is_there = connection.on_event(mask, now)
        except BlockingIOError:
            return
        except OSError:
            is_there = False
        except Exception as error:  # a bug costs this connection, not the others
            self.faults.note(f"a connection failed: {type(error).__name__} at {place_of(error)}")
            is_there = False
        if not is_there:
            self._drop(connection)
        elif connection.deadline < self._sweep_at:
            self._sweep_at = connection.deadline

    def _accept(self, now: float) -> None:
        for _ in range(_ACCEPT_BURST):
            try:
                with _FORK_LOCK:
                    accepted, _ = self._bound.socket.accept()
                    connection = AcceptedConnection(accepted, self, now)
                    self._connections[connection.fd] = connection
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._pause_accepting(now)
                    return
                continue  # that peer is already gone
            self.epoll.register(connection.fd, IN)
            if not self._admit(connection, now):
                self._drop(connection)
            elif connection.deadline < self._sweep_at:
                self._sweep_at = connection.deadline

    def _admit(self, connection: AcceptedConnection, now: float) -> bool:
        _, uid, _ = peer_credentials(connection.socket)
        if not is_permitted(uid):
            self.faults.note("a peer of another user was rejected")
            is_there = connection.refuse(NotPermitted("only the user of this agent and root may ask it"), now)
        elif len(self._connections) > self.max_connections:
            self.faults.note("a connection above the limit was rejected")
            text = f"{self.max_connections} connections are open, the limit of this agent: try again"
            is_there = connection.refuse(Busy(text), now)
        else:
            return True
        return is_there and len(self._connections) <= self.max_connections + _LINGER_SLOTS

    def _pause_accepting(self, now: float) -> None:
        self.faults.note("no descriptor or memory for another connection")
        # Until the next sweep. The listener stays readable, so the loop would spin.
        self.epoll.modify(self._bound.socket.fileno(), 0)
        self._is_accepting = False
        self._sweep_at = min(self._sweep_at, now + _PAUSE_SECONDS)

    def _sweep(self, now: float) -> None:
        for connection in [each for each in self._connections.values() if each.deadline <= now]:
            connection.note_deadline()
            self._drop(connection)
        if not self._is_accepting:
            self.epoll.modify(self._bound.socket.fileno(), IN)
            self._is_accepting = True
        self._sweep_at = min((each.deadline for each in self._connections.values()), default=inf)

    def _drop(self, connection: AcceptedConnection) -> None:
        # Unregister first: epoll watches the open file, which a forked child may keep open, not the descriptor.
        self.epoll.unregister(connection.fd)
        with _FORK_LOCK:
            connection.socket.close()
            del self._connections[connection.fd]

    def _release(self) -> None:
        self._bound.close()
        for connection in list(self._connections.values()):
            self._drop(connection)
        self.epoll.close()
        os.close(self._wake_fd)
        _SERVERS.discard(self)  # last: until here a fork has something to forget

    def _forget(self) -> None:
        # Only the child's descriptors: the parent still uses the socket's file and the epoll set.
        self._bound.socket.close()
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()
        self.epoll.close()
        os.close(self._wake_fd)
        self._thread = None


# Held around every fork, and while a descriptor is opened and recorded, or closed and forgotten. Otherwise a fork in
# between leaves it open in the child, and its peer never sees an end. That includes closing: CPython's socket forgets
# its number before the kernel closes it (sock_close in socketmodule.c). Reentrant: a signal handler may fork.
_FORK_LOCK: Final = threading.RLock()
_SERVERS: Final[weakref.WeakSet[AgentServer]] = weakref.WeakSet()


def _forget_in_child() -> None:
    servers = list(_SERVERS)
    _SERVERS.clear()
    for server in servers:
        server._forget()  # noqa: SLF001 - the same module
    _FORK_LOCK.release()


os.register_at_fork(before=_FORK_LOCK.acquire, after_in_parent=_FORK_LOCK.release, after_in_child=_forget_in_child)
