"""Py4J's callbacks, by which Spark calls Python (`foreachBatch`, listeners): for the JVM alone.

PySpark listens for them on a loopback port, where any user of the machine could call whatever it has registered. The
JVM knows the token by which PySpark proves to it who it is; here both sides are made to use it for callbacks too.
"""

from __future__ import annotations

import secrets
from typing import Any

__all__ = ["authenticate"]

_TOKEN_BYTES = 32


def authenticate(gateway: Any) -> None:
    """From now on a connection for a callback must prove to come from this gateway's JVM. Idempotent.

    Where callbacks are listened for already (`foreachBatch` before `attach`), connections that are open stay as they
    are; and a callback that begins in the millisecond between the two sides fails.

    Raises what Py4J raises, with nothing changed but that PySpark listens.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    # Not the gateway's own: it would be sent to any process that got the port of one that has ended.
    token = secrets.token_hex(_TOKEN_BYTES)
    ours = gateway.callback_server_parameters
    if gateway.__dict__.get("_callback_server") is not None:
        if ours.auth_token is None:
            _let_the_jvm_send(gateway, token)
            ours.auth_token = token  # each new connection reads it (py4j.java_gateway.CallbackConnection.run)
        return
    ours.auth_token = token
    try:
        ensure_callback_server_started(gateway)
        _let_the_jvm_send(gateway, token)
    except Exception:
        ours.auth_token = None
        raise


def _let_the_jvm_send(gateway: Any, token: str) -> None:
    """`PythonClient.copyWith`, by which the JVM learns of PySpark's port, forgets the token (Py4J 0.10.9.9)."""
    from py4j.java_gateway import JavaObject

    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()  # noqa: SLF001 - as PySpark does
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)
