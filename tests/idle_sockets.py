"""Idle TCP sockets on loopback, as on a machine with many clients."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

_BACKLOG = 4000
"""Connections that one listener keeps without a descriptor: one fewer than the default of `net.core.somaxconn`."""
_SPARE = 500


@contextmanager
def idle_sockets(count: int) -> Iterator[None]:
    """Both ends count, but only one takes a descriptor, because no listener accepts them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count // 2 + _SPARE:
        pytest.skip(f"this user may open {hard} files only (ulimit -Hn)")
    with ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        clients = opened.enter_context(ExitStack())
        listeners = opened.enter_context(
            ExitStack()
        )  # closed first, which resets the connections, so that no port stays in TIME_WAIT
        for number in range(count // 2):
            if number % _BACKLOG == 0:
                listener = listeners.enter_context(socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG))
            clients.enter_context(socket.create_connection(listener.getsockname()))
        yield
