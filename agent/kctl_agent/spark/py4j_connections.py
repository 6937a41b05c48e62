"""Secures Py4J's connections to a JVM: calls respect their thread's deadline, and the JVM must belong to this user.

Py4J waits for an answer for ever, does not authenticate the JVM, and reconnects by itself: once a JVM has died, any
user may listen on its port and would get the token and the Kafka password with the next call.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kctl_agent.peers import owner_of_listener
from kctl_agent.process import deadline

_LEAST_SECONDS: Final = 0.05
"""The shortest time-out, for clean-up calls after the deadline; a healthy JVM needs less."""


@cache
def guard_connections() -> None:
    """A call that times out raises the same as a broken connection. A connection to another user's port is rejected
    before anything is sent."""
    from py4j.clientserver import ClientServerConnection

    inner: Any = ClientServerConnection
    inner.send_command = _limited(inner.send_command)
    # Between connecting and sending the token Py4J has no other place.
    inner._authenticate_connection = _only_to_this_user(inner._authenticate_connection)  # noqa: SLF001


def _limited(send: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def send_command(connection: Any, command: str) -> Any:
        seconds = deadline.left()
        connection.socket.settimeout(None if math.isinf(seconds) else max(seconds, _LEAST_SECONDS))
        return send(connection, command)

    return send_command


def _only_to_this_user(send_token: Callable[[Any], None]) -> Callable[[Any], None]:
    def authenticate(connection: Any) -> None:
        owner = owner_of_listener(*connection.socket.getpeername())
        if owner != os.geteuid():
            whose = "nobody" if owner is None else f"uid {owner}"
            text = f"port {connection.java_port} of the JVM belongs to {whose} now, not to this user"
            raise ConnectionRefusedError(errno.ECONNREFUSED, text)
        send_token(connection)

    return authenticate
