"""Py4J's callbacks, by which Spark calls Python (`foreachBatch`, listeners): for the JVM alone.

PySpark listens for them on a loopback port, where any user of the machine could call whatever it has registered. The
JVM knows the token by which PySpark proves to it who it is; here both sides are made to use it for callbacks too.
"""

from __future__ import annotations

from typing import Any

__all__ = ["authenticate"]


def authenticate(gateway: Any) -> bool:
    """From now on a callback must prove that it comes from this gateway's JVM. False: callbacks are listened for
    already, by whoever asked for them first, and nothing was changed.

    Raises what Py4J raises, with nothing changed but that PySpark listens.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    if gateway.__dict__.get("_callback_server") is not None:
        return False
    token = gateway.gateway_parameters.auth_token
    gateway.callback_server_parameters.auth_token = token
    try:
        ensure_callback_server_started(gateway)
        _let_the_jvm_send(gateway, token)
    except Exception:
        gateway.callback_server_parameters.auth_token = None
        raise
    return True


def _let_the_jvm_send(gateway: Any, token: str) -> None:
    """`PythonClient.copyWith`, by which the JVM learns of PySpark's port, forgets the token (Py4J 0.10.9.9)."""
    from py4j.java_gateway import JavaObject

    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()  # noqa: SLF001 - as PySpark does
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)
