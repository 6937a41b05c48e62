"""That the JVM behind a port is still this user's.

Py4J proves to the JVM who it is, but asks for no proof, and connects again by itself when a connection has ended. When
a JVM dies any user of the machine may listen on its port; the next call would send the token, the password for Kafka
and the settings of the storage there, and take for Spark's whatever comes back.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["owners_of", "talk_to_no_other"]

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN: Final = "0A"
"""TCP_LISTEN in include/net/tcp_states.h."""
_MARK: Final = "_kctl_talks_to_no_other"


def talk_to_no_other() -> None:
    """From now on Py4J's connections to a JVM are given up, with nothing sent, where the port is another user's.

    Of the whole process; idempotent. The error is a ConnectionRefusedError, as for a port that nobody listens on.
    """
    from py4j.clientserver import ClientServerConnection

    inner: Any = ClientServerConnection
    if not hasattr(inner, _MARK):
        setattr(inner, _MARK, True)
        # Between connecting and sending the token Py4J has no other place.
        inner._authenticate_connection = _only_to_this_user(inner._authenticate_connection)  # noqa: SLF001


def owners_of(port: int) -> set[int]:
    """The uids of those who listen on this TCP port, on any address. Raises OSError: the kernel does not show it."""
    return {uid for table in _TABLES if table.exists() for uid in _listeners(table, f"{port:04X}")}


def _listeners(table: Path, port: str) -> Iterator[int]:
    """By proc_pid_net(5): `sl local_address rem_address st tx:rx tr:when retrnsmt uid …`."""
    for line in table.read_text("ascii").splitlines()[1:]:
        words = line.split()
        if words[3] == _LISTEN and words[1].rpartition(":")[2] == port:
            yield int(words[7])


def _only_to_this_user(send_token: Callable[[Any], None]) -> Callable[[Any], None]:
    def authenticate(connection: Any) -> None:
        owners = owners_of(connection.java_port)
        if owners != {os.geteuid()}:
            whose = f"uid {', '.join(map(str, sorted(owners)))}" if owners else "nobody"
            text = f"port {connection.java_port} of the JVM belongs to {whose} now, not to this user"
            raise ConnectionRefusedError(errno.ECONNREFUSED, text)
        send_token(connection)

    return authenticate
