"""Calls of the JVM with a time-out, the deadline of their thread: Py4J waits for an answer for ever."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from kctl_agent.process import deadline

__all__ = ["limit_calls"]

_MARK: Final = "_kctl_limits_calls"
_LEAST_SECONDS: Final = 0.05
"""The shortest time-out, for what is called after the deadline, to clean up: a JVM that is well needs less."""


def limit_calls() -> None:
    """Limits calls of this process; idempotent. What is given up raises what Py4J raises of a broken connection."""
    from py4j.clientserver import ClientServerConnection

    inner: Any = ClientServerConnection
    if not hasattr(inner, _MARK):
        setattr(inner, _MARK, True)
        inner.send_command = _limited(inner.send_command)


def _limited(send: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    def send_command(connection: Any, command: str) -> Any:
        seconds = deadline.left()
        connection.socket.settimeout(None if math.isinf(seconds) else max(seconds, _LEAST_SECONDS))
        return send(connection, command)

    return send_command
