"""The agent's socket: one daemon thread, one epoll loop, bounded connections; it answers whatever its owner is doing.

A guest in somebody else's process: standard library only, no signal handler, no umask, no log line a peer has
written, and after a fork the child holds nothing of it. Frames are `kctl_agent.wire`, meaning is
`kctl_agent.dispatch`, the place of the socket is `kctl_agent.paths`.
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
from math import inf
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Final, Self

from kctl_agent.commands import COMMANDS, Command
from kctl_agent.dispatch import Dispatcher, Tally
from kctl_agent.errors import AgentError, Busy, NotPermitted, WireError
from kctl_agent.messages import reply_error
from kctl_agent.paths import BoundSocket, bind_socket, is_permitted, peer_credentials, prepare_run_dir
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import MAX_REQUEST_BYTES, Decoder, JsonObject, encode

__all__ = ["AgentServer"]

_LOG: Final = logging.getLogger(__name__)
_RECEIVE_BYTES: Final = 1 << 16
_REPLY_BATCH_BYTES: Final = 1 << 16
_ACCEPT_BURST: Final = 64
_LINGER_SECONDS: Final = 1.0
_LINGER_SLOTS: Final = 64
_PAUSE_SECONDS: Final = 1.0
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_READABLE: Final = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR


class _Connection:
    """One peer. Replies leave in the order of the requests; while they do not leave, nothing more is read."""

    __slots__ = ("deadline", "decoder", "fd", "is_ending", "out", "peer_is_done", "socket", "waiting")

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self.socket = connection
        self.fd = connection.fileno()
        self.decoder = Decoder(MAX_REQUEST_BYTES)
        self.waiting: deque[JsonObject | AgentError] = deque()  # what is to be answered once `out` has left
        self.out = bytearray()  # at most one batch of replies and the reply that overfilled it
        self.deadline = deadline
        self.is_ending = False  # a last reply is on its way; what still comes in is thrown away
        self.peer_is_done = False


class AgentServer:
    """Serves `run_dir`/`name`.sock from the last published snapshot.

    At most `max_connections` are served at once, others are told `busy`. A frame must be complete
    `frame_timeout_seconds` after its first byte, and a reply must make progress in that time; a silent connection is
    closed after `idle_timeout_seconds`. Output held for a peer is bounded by one reply (16 MiB) and a batch (64 KiB).
    """

    def __init__(
        self,
        run_dir: Path,
        name: str,
        commands: Mapping[str, Command] = COMMANDS,
        *,
        allowed_gid: int | None = None,
        max_connections: int = 256,
        frame_timeout_seconds: float = 5.0,
        idle_timeout_seconds: float = 300.0,
        backlog: int = 256,
    ) -> None:
        self.name = name
        self._run_dir = run_dir
        self._allowed_gid = allowed_gid
        self._max_connections = max_connections
        self._frame_timeout_seconds = frame_timeout_seconds
        self._idle_timeout_seconds = idle_timeout_seconds
        self._backlog = backlog
        self._tally = Tally(_LOG, name)
        self._dispatcher = Dispatcher(name, commands, self._tally)
        self._connections: dict[int, _Connection] = {}
        self._sweep_at = inf  # never later than the earliest deadline; may be earlier
        self._is_accepting = True
        self._is_closing = False
        self._thread: threading.Thread | None = None
        self._bound: BoundSocket
        self._epoll: select.epoll
        self._wake_fd: int

    @property
    def counts(self) -> Mapping[str, int]:
        """What went wrong so far, by kind."""
        return self._tally.counts

    def publish(self, snapshot: Snapshot) -> None:
        """Answer from this snapshot from now on. Any thread; a swap of one reference."""
        self._dispatcher.snapshot = snapshot

    def start(self) -> None:
        """Bind, listen and start the thread. When it returns, a caller is answered.

        Raises:
            PathError: run_dir or the socket's path cannot be used, or somebody serves it already.
            RuntimeError: it was started before.
        """
        if self._thread is not None:
            raise RuntimeError(f"agent {self.name} was started before: make a new one")
        prepare_run_dir(self._run_dir)
        self._bound = bind_socket(self._run_dir, self.name, self._backlog)
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bound.socket.fileno(), select.EPOLLIN)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name=f"kctl-agent {self.name}", daemon=True)
        with _FORK_LOCK:
            _SERVERS.add(self)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, remove the socket if it is ours, wait for the thread. Any thread but that; idempotent."""
        with _FORK_LOCK:
            if self._thread is None or self not in _SERVERS:
                return
            _SERVERS.discard(self)
            self._is_closing = True
            os.eventfd_write(self._wake_fd, 1)
        self._thread.join()
        os.close(self._wake_fd)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- the agent's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        connections, poll, listener_fd = self._connections, self._epoll.poll, self._bound.socket.fileno()
        try:
            while True:
                events = poll(None if self._sweep_at == inf else max(self._sweep_at - monotonic(), 0.0))
                with _FORK_LOCK:  # a fork happens between two rounds, when every descriptor is on record
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
            _LOG.exception("agent %s: its thread ends, nobody is answered any more", self.name)
        finally:
            with _FORK_LOCK:
                self._release()

    def _serve(self, connection: _Connection, mask: int, now: float) -> None:
        try:
            if mask & select.EPOLLOUT:
                self._flush(connection, now)
            elif mask & _READABLE:
                self._read(connection, now)
        except OSError:  # the peer is gone; that is its right
            self._drop(connection)

    def _read(self, connection: _Connection, now: float) -> None:
        try:
            data = connection.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        if connection.is_ending:
            if not data:
                self._drop(connection)
            return
        if not data:
            connection.peer_is_done = True
            if not connection.decoder.at_boundary:
                self._tally.note("a peer closed inside a frame")
            self._advance(connection, now)
            return
        decoder = connection.decoder
        had_half = not decoder.at_boundary
        try:
            frames = decoder.feed(data)
        except WireError:
            frames = []
        if len(frames) == 1 and decoder.error is None:
            self._send(connection, self._dispatcher.reply_to(frames[0]), now)
        else:
            connection.waiting.extend(frames)
            if decoder.error is not None:
                self._tally.note(f"a malformed frame ({decoder.error.code})")
                connection.waiting.append(decoder.error)
                connection.is_ending = True
            self._advance(connection, now)
        if connection.out or connection.is_ending:
            return
        if decoder.at_boundary:
            connection.deadline = now + self._idle_timeout_seconds  # later than before: _sweep_at stays true
        elif frames or not had_half:
            self._set_deadline(connection, now + self._frame_timeout_seconds)

    def _advance(self, connection: _Connection, now: float) -> None:
        """Answer what waits for as long as the peer takes the replies, then end what is to be ended."""
        waiting = connection.waiting
        while waiting and not connection.out:
            batch, size = [], 0
            while waiting and size < _REPLY_BATCH_BYTES:
                item = waiting.popleft()
                reply = (
                    encode(reply_error(None, item)) if isinstance(item, AgentError) else self._dispatcher.reply_to(item)
                )
                batch.append(reply)
                size += len(reply)
            self._send(connection, b"".join(batch), now)
        if connection.out:
            return
        if connection.peer_is_done:
            self._drop(connection)
        elif connection.is_ending:
            # Not close(): that resets the peer while it is still sending, and it would never read why it was refused.
            connection.socket.shutdown(socket.SHUT_WR)
            self._set_deadline(connection, now + _LINGER_SECONDS)

    def _send(self, connection: _Connection, data: bytes, now: float) -> None:
        """Try at once; what the kernel does not take waits in `out`, which is empty before."""
        try:
            sent = connection.socket.send(data, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            connection.out += memoryview(data)[sent:]
            self._epoll.modify(connection.fd, select.EPOLLOUT)
            self._set_deadline(connection, now + self._frame_timeout_seconds)

    def _flush(self, connection: _Connection, now: float) -> None:
        with memoryview(connection.out) as view:
            try:
                sent = connection.socket.send(view, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return
        del connection.out[:sent]
        connection.deadline = now + self._frame_timeout_seconds
        if not connection.out:
            self._epoll.modify(connection.fd, select.EPOLLIN)
            connection.deadline = now + self._idle_timeout_seconds
            self._advance(connection, now)

    def _accept(self, now: float) -> None:
        for _ in range(_ACCEPT_BURST):
            try:
                accepted, _ = self._bound.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:  # the listener stays readable: without a pause the loop would spin
                    self._tally.note("no descriptor or memory for another connection")
                    self._pause_accepting(now)
                    return
                continue
            try:
                self._admit(accepted, now)
            except OSError:
                accepted.close()

    def _admit(self, accepted: socket.socket, now: float) -> None:
        accepted.setblocking(False)
        _, uid, gid = peer_credentials(accepted)
        if not is_permitted(uid, gid, self._allowed_gid):
            self._tally.note("a peer of another user was refused")
            refusal = NotPermitted("only the user of this agent and root may ask it")
            accepted.send(encode(reply_error(None, refusal)), socket.MSG_NOSIGNAL)
            accepted.close()
            return
        connection = _Connection(accepted, now + self._idle_timeout_seconds)
        if len(self._connections) >= self._max_connections:
            self._tally.note("a connection above the bound was refused")
            busy = Busy(f"{self._max_connections} connections are open, the bound of this agent: try again")
            accepted.send(encode(reply_error(None, busy)), socket.MSG_NOSIGNAL)
            if len(self._connections) >= self._max_connections + _LINGER_SLOTS:
                accepted.close()
                return
            accepted.shutdown(socket.SHUT_WR)
            connection.is_ending = True
            connection.deadline = now + _LINGER_SECONDS
        self._epoll.register(connection.fd, select.EPOLLIN)
        self._connections[connection.fd] = connection
        self._set_deadline(connection, connection.deadline)

    def _pause_accepting(self, now: float) -> None:
        self._epoll.modify(self._bound.socket.fileno(), 0)
        self._is_accepting = False
        self._sweep_at = min(self._sweep_at, now + _PAUSE_SECONDS)

    def _set_deadline(self, connection: _Connection, deadline: float) -> None:
        connection.deadline = deadline
        self._sweep_at = min(self._sweep_at, deadline)

    def _sweep(self, now: float) -> None:
        """Close what is past its deadline, and find the next one."""
        for connection in [each for each in self._connections.values() if each.deadline <= now]:
            if connection.out:
                self._tally.note("a peer did not read its reply")
            elif not connection.decoder.at_boundary and not connection.is_ending:
                self._tally.note("half a frame and silence")
            self._drop(connection)
        if not self._is_accepting:
            self._epoll.modify(self._bound.socket.fileno(), select.EPOLLIN)
            self._is_accepting = True
        self._sweep_at = min((each.deadline for each in self._connections.values()), default=inf)

    def _drop(self, connection: _Connection) -> None:
        # Unregister first: epoll watches the open file, not the descriptor, and a forked child may hold that file open.
        self._epoll.unregister(connection.fd)
        del self._connections[connection.fd]
        connection.socket.close()

    def _release(self) -> None:
        self._bound.close()
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._epoll.close()

    def _forget(self) -> None:
        """In a forked child: close the inherited descriptors; the files and the epoll set stay the parent's."""
        self._bound.socket.close()
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()
        self._epoll.close()
        os.close(self._wake_fd)


# Reentrant, because close() may be called by whoever is about to fork. Taken around every round of every loop and
# around every fork: a descriptor accepted but not yet on record would stay open in the child, and its peer would
# never see an end.
_FORK_LOCK: Final = threading.RLock()
_SERVERS: Final[weakref.WeakSet[AgentServer]] = weakref.WeakSet()


def _forget_in_child() -> None:
    servers = list(_SERVERS)
    _SERVERS.clear()
    for server in servers:
        server._forget()  # noqa: SLF001 - the same module
    _FORK_LOCK.release()


os.register_at_fork(before=_FORK_LOCK.acquire, after_in_parent=_FORK_LOCK.release, after_in_child=_forget_in_child)
