"""Secures Py4J's calls and callbacks, and ends a call at the calling thread's `process.deadline`.

- Callbacks (`foreachBatch`, listeners): PySpark listens on a loopback port, where any user could call its registered
  objects. So the JVM must present a token. Py4J reads a line of any length before it checks the token, so connections
  of other users are closed unread.
- Calls: Py4J waits for an answer for ever, does not authenticate the JVM, and reconnects by itself. If a JVM has died,
  another user may listen on its port, and would get the token and the Kafka password. So the port's owner is checked.
"""

import errno
import math
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from kctl_agent.peers import is_own, owner_of_listener
from kctl_agent.process import deadline

_LEAST_SECONDS = 0.05
"""The shortest time-out, for clean-up calls after the deadline; a healthy JVM needs less."""


def authenticate(gateway: Any, port: int = 0) -> None:
    """Makes callback connections prove that they come from this gateway's JVM. Call it before the first callback.

    PySpark listens on `port` (0: any), even if the engine has reserved it. Raises Py4J's errors.
    """
    # Not the gateway's own token: it would be sent to any process that got the port of one that has ended.
    token = secrets.token_hex(32)
    gateway.callback_server_parameters.auth_token = token
    _listen(gateway, port)
    _let_the_jvm_send(gateway, token)


def _listen(gateway: Any, port: int) -> None:
    from py4j.java_gateway import JavaObject

    parameters = gateway.callback_server_parameters
    parameters.eager_load = parameters.daemonize = parameters.daemonize_connections = True
    parameters.port = port
    with _port_shared():
        gateway.start_callback_server(parameters)
    _take_none_of_others(gateway)
    server = gateway._callback_server  # noqa: SLF001 - as PySpark does
    server.port = gateway._python_proxy_port = server.server_socket.getsockname()[1]  # noqa: SLF001
    jvm = JavaObject("GATEWAY_SERVER", gateway._gateway_client)  # noqa: SLF001
    jvm.resetCallbackClient(jvm.getCallbackClient().getAddress(), server.port)


@contextmanager
def _port_shared() -> Iterator[None]:
    from py4j import java_gateway as module

    reuse_address = module.set_reuse_address

    def share(server: socket.socket) -> None:
        reuse_address(server)
        # The engine then keeps the port after a worker's end. On a free port, any user could answer the JVM.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)

    module.set_reuse_address = share
    try:
        yield
    finally:
        module.set_reuse_address = reuse_address


def _take_none_of_others(gateway: Any) -> None:
    server, jvm = gateway._callback_server, gateway.gateway_parameters  # noqa: SLF001
    create = server._create_connection  # noqa: SLF001
    if owner_of_listener(socket.gethostbyname(jvm.address), jvm.port) is None:
        return  # the kernel hides the owners of connections: only the token protects callbacks

    def create_of_own(peer: socket.socket, stream: Any) -> Any:
        if not is_own(peer):  # Py4J's thread finds it closed, and ends
            stream.close()
            peer.close()
        return create(peer, stream)

    server._create_connection = create_of_own  # noqa: SLF001


def _let_the_jvm_send(gateway: Any, token: str) -> None:
    from py4j.java_gateway import JavaObject

    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()  # noqa: SLF001 - as PySpark does
    # `resetCallbackClient` has dropped the token (`PythonClient.copyWith`, 0.10.9.9).
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)


@cache
def guard_connections() -> None:
    """Makes a Py4J call fail like a broken connection at the calling thread's deadline. Makes Py4J send its token only
    if this user owns the JVM's port."""
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
