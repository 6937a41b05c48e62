"""PySpark's callbacks, on a real JVM without a Spark session: who may call."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kctl_agent.spark.callbacks import authenticate

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


class Runnable:
    """A `java.lang.Runnable` in Python, as `foreachBatch` and listeners are."""

    calls = 0

    def run(self) -> None:
        self.calls += 1

    class Java:
        implements = ("java.lang.Runnable",)


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from pyspark.java_gateway import launch_gateway

    from kctl.jars import java_command

    monkeypatch.setenv("JAVA_HOME", str(java_command().resolve().parents[1]))
    gateway = launch_gateway()
    yield gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


def called(gateway: Any, target: Runnable) -> int:
    """How often, after the JVM has called it from a thread of its own, that is over a connection of its own."""
    thread = gateway.jvm.java.lang.Thread(target)
    thread.start()
    thread.join()
    return target.calls


def reply(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
        stranger.sendall(request)
        stranger.shutdown(socket.SHUT_WR)
        try:
            return stranger.recv(65536)
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize("is_late", [False, True], ids=["first", "after the application has used callbacks"])
def test_only_the_jvm_may_call_back(gateway: Any, is_late: bool) -> None:
    from pyspark.java_gateway import ensure_callback_server_started

    target = Runnable()
    if is_late:
        ensure_callback_server_started(gateway)
        assert called(gateway, target) == 1
    before = target.calls

    authenticate(gateway)
    authenticate(gateway)

    port = gateway._callback_server.port
    assert called(gateway, target) == before + 1, "the JVM knows the token"
    call = b"c\np0\nrun\ne\n"
    assert reply(port, call) == b""
    assert reply(port, b"A\nguessed\ne\n" + call).rstrip() in (b"", b"!xn", b"!x")
    assert target.calls == before + 1
    assert called(gateway, target) == before + 2
