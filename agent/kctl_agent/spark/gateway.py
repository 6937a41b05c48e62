"""Py4J gateways to a JVM. Only this user's processes can use them.

Py4J reads a whole line before it checks a connection's token, and a long line could fill the JVM's heap. So the JVM
compares the connection's first bytes with the token before Py4J reads them (`java/kctl/TokenServerSocket.java`).
"""

import os
import secrets
import socket

# ruff: noqa: SLF001 - PySpark and Py4J have no public names for what is done here
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kctl_agent.errors import AgentError, BadPayload, CommandFailed
from kctl_agent.paths import ENGINE_NAME, process_identity, socket_path
from kctl_agent.rpc.messages import Request, Role, wire_method
from kctl_agent.rpc.wire import MAX_REPLY_BYTES, Decoder, JsonObject, encode
from kctl_agent.spark.py4j_security import guard_connections
from kctl_agent.spark.without_pandas import convert_without_pandas

JAVA_CLASSES = Path(__file__).parent / "java"

_ANSWER_SECONDS = 1.0


@contextmanager
def exported(name: str, text: str) -> Iterator[None]:
    given = os.environ.get(name)
    os.environ[name] = text
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given


class OwnGateways:
    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        urls = gateway.new_array(self._java("java.net.URL"), 1)
        urls[0] = self._java("java.net.URL")(f"{JAVA_CLASSES.as_uri()}/")
        kind = self._java("java.net.URLClassLoader")(urls).loadClass("kctl.TokenServerSocket")
        # Does not check the owner of a connection: Java could only search `/proc/net/tcp`, which may take seconds.
        self._new_socket = kind.getConstructors()[0].newInstance
        self._socket = self._java("java.lang.Class").forName("py4j.GatewayServer").getDeclaredField("sSocket")
        self._socket.setAccessible(True)

    def open(self, entry_point: Any) -> tuple[Any, int, str]:
        """Starts a `py4j.ClientServer` on loopback and returns (server, port, token). While a JVM thread waits
        for a callback, it also runs the calls that the callback makes."""
        token = secrets.token_hex(32)
        builder = self._java("py4j.ClientServer$ClientServerBuilder")().autoStartJavaServer(False)
        server = builder.authToken(token).entryPoint(entry_point).build()
        arguments = self._gateway.new_array(self._java("java.lang.Object"), 1)
        arguments[0] = token
        listening = self._new_socket(arguments)
        listening.bind(self._java("java.net.InetSocketAddress")("127.0.0.1", 0))
        # The builder accepts a socket factory but ignores it (0.10.9.9), so this does what the server's `start` does.
        self._socket.set(server.getJavaServer(), listening)
        self._java("java.lang.Thread")(server.getJavaServer()).start()
        return server, int(listening.getLocalPort()), token

    def _java(self, name: str) -> Any:
        from py4j.java_gateway import JavaClass

        # Not by `gateway.jvm`, which searches each of Spark's jars for each part of the name.
        return JavaClass(name, self._gateway._gateway_client)


def launched() -> Any:
    """Starts a JVM that only this user can reach, and returns PySpark's gateway to it. Main thread only."""
    from pyspark.java_gateway import launch_gateway

    first = launch_gateway()
    _, port, token = OwnGateways(first).open(None)
    gateway = connected(port, token)
    gateway.proc = first.proc
    first.shutdown()
    return gateway


def connected(port: int, token: str) -> Any:
    """Connects PySpark to a running JVM. Main thread only."""
    from pyspark.java_gateway import launch_gateway

    with exported("PYSPARK_GATEWAY_PORT", str(port)), exported("PYSPARK_GATEWAY_SECRET", token):
        return launch_gateway()


@dataclass(frozen=True, slots=True)
class Gateway:
    """A Py4J gateway on loopback for this process alone. Its entry point is a Spark session."""

    port: int
    token: str = field(repr=False)
    engine_pid: int
    callback_port: int
    """Where this process listens for the JVM. The engine reserves it too, so that no other process gets it."""

    def connect(self) -> Any:
        """Connects to the engine and returns Py4J's client. Main thread only. A `foreachBatch` function's Spark calls
        run in the query's JVM thread, with the query's job group and pool. Stopping the query ends these calls."""
        guard_connections()
        convert_without_pandas()
        return connected(self.port, self.token)


class GatewayRequest:
    """Uses the engine's agent socket to ask for a gateway, so that port and token appear in no file, command line or
    environment. `poll` returns the gateway, or why there is none yet. For one thread."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._path = socket_path(run_dir, ENGINE_NAME)
        self._name = name
        self._operation = uuid.uuid4().hex
        self._is_accepted = False

    def poll(self) -> Gateway | str:
        try:
            if not self._is_accepted:
                params = {"operation": self._operation, "name": self._name, **process_identity()._asdict()}
                ask(self._path, "gateway", params, _ANSWER_SECONDS)
                self._is_accepted = True
            outcome = ask(self._path, "operation", {"operation": self._operation}, _ANSWER_SECONDS)
        except CommandFailed as error:  # another engine than the one that was asked
            self._restart()
            return f"the engine rejects the request: {error}"
        except (OSError, AgentError) as error:
            return f"the engine does not answer: {error}"
        if outcome["state"] == "waiting":
            return "the engine is starting"
        self._restart()
        if outcome["state"] == "failed":
            return str(outcome["text"])
        return Gateway(**outcome["result"])

    def _restart(self) -> None:
        self._operation, self._is_accepted = uuid.uuid4().hex, False


def ask(path: Path, rpc: str, params: JsonObject, timeout_seconds: float) -> JsonObject:
    """Sends command `rpc` to the agent at socket `path` and returns the result. Raises OSError if the agent does not
    answer, CommandFailed for the agent's errors, and WireError for a malformed reply."""
    request = Request(
        Role.MASTER, rpc, wire_method(rpc), params=params, deadline_ms=max(int(timeout_seconds * 1000), 1)
    )
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_seconds)
        connection.connect(os.fsencode(path))
        connection.sendall(encode(request.to_json()))
        reply = _frame(connection)
    error, result = reply.get("error"), reply.get("result")
    if isinstance(error, dict):
        raise CommandFailed(str(error.get("message")))
    if not isinstance(result, dict):
        raise BadPayload("not a reply: it has neither a result nor an error")
    return result


def _frame(connection: socket.socket) -> JsonObject:
    decoder = Decoder(MAX_REPLY_BYTES)
    while True:
        data = connection.recv(1 << 16)
        if not data:
            decoder.end()
            raise ConnectionResetError("the agent closed the connection")
        for frame in decoder.feed(data):
            return frame
