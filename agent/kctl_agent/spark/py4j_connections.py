"""Py4J's connections to a JVM: answered within the deadline of their thread, and by a JVM of this user alone.

Py4J waits for an answer for ever. It proves to the JVM who it is, but asks for no proof, and connects again by itself:
once a JVM has died any user of the machine may listen on its port, and would get the token, the password for Kafka and
the settings of the storage with the next call.
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
"""The shortest time-out, for what is called after the deadline, to clean up: a JVM that is well needs less."""


@cache
def guard_connections() -> None:
    """Guards those of this process. A call that is given up raises what Py4J raises of a broken connection; one to a
    port of another user is refused as where nobody listens, with nothing sent."""
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
            whose = "nobody (or this kernel lacks tcp_diag)" if owner is None else f"uid {owner}"
            text = f"port {connection.java_port} of the JVM belongs to {whose} now, not to this user"
            raise ConnectionRefusedError(errno.ECONNREFUSED, text)
        send_token(connection)

    return authenticate
