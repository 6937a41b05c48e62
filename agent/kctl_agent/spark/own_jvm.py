"""A check that the JVM behind a port is still this user's.

Py4J proves to the JVM who it is, but asks for no proof, and connects again by itself when a connection has ended. When
a JVM dies any user of the machine may listen on its port; the next call would send the token, the password for Kafka
and the settings of the storage there, and take for Spark's whatever comes back.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, Final

from kctl_agent.peers import owners_of

__all__ = ["talk_to_no_other"]

_MARK: Final = "_kctl_talks_to_no_other"


def talk_to_no_other() -> None:
    """Makes Py4J give up connections to a JVM, with nothing sent, where the port is another user's.

    Of the whole process; idempotent. The error is a ConnectionRefusedError, as for a port that nobody listens on.
    """
    from py4j.clientserver import ClientServerConnection

    inner: Any = ClientServerConnection
    if not hasattr(inner, _MARK):
        setattr(inner, _MARK, True)
        # Between connecting and sending the token Py4J has no other place.
        inner._authenticate_connection = _only_to_this_user(inner._authenticate_connection)  # noqa: SLF001


def _only_to_this_user(send_token: Callable[[Any], None]) -> Callable[[Any], None]:
    def authenticate(connection: Any) -> None:
        owners = owners_of(*connection.socket.getpeername())
        if owners != {os.geteuid()}:
            whose = f"uid {', '.join(map(str, sorted(owners)))}" if owners else "nobody"
            text = f"port {connection.java_port} of the JVM belongs to {whose} now, not to this user"
            raise ConnectionRefusedError(errno.ECONNREFUSED, text)
        send_token(connection)

    return authenticate
