"""A real gateway between Python and a JVM, without PySpark's session."""

import errno
import os
import select
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
from py4j.protocol import Py4JError

from kctl_agent.engine.main import Guests, held_port
from kctl_agent.paths import process_identity
from kctl_agent.peers import is_own, owner_of_listener
from kctl_agent.process import deadline
from kctl_agent.spark.conf import memory_exits
from kctl_agent.spark.gateway import JAVA_CLASSES, exported, launched
from kctl_agent.spark.py4j_security import authenticate, guard_connections
from kctl_agent.spark.session import serve_this_user, why_lost
from kctl_agent.worker.query.daemon import for_own_user
from tests.conftest import BRIEF_JVM, eventually
from tests.java_classes import compiled
from tests.processes import alive, command_line
from tests.stranger import BECOME_NOBODY, NOBODY, needs_root
from tests.worker_settings import driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Runnable:
    calls = 0

    def run(self) -> None:
        self.calls += 1

    class Java:
        implements = ("java.lang.Runnable",)


@pytest.fixture
def gateway() -> Iterator[Any]:
    with running_gateway() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def one_gateway() -> Iterator[Any]:
    with running_gateway() as gateway:
        yield gateway


@contextmanager
def running_gateway() -> Iterator[Any]:
    from kctl.jars.java import java_command

    deadline.go_on(deadline.NEVER)  # earlier tests of a worker's turns have left the thread one
    java_home = str(java_command().resolve().parents[1])
    with exported("JAVA_HOME", java_home), exported("SPARK_SUBMIT_OPTS", BRIEF_JVM):
        gateway = launched()
    yield gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


def called(gateway: Any, target: Runnable) -> int:
    # A new thread calls over a new connection.
    thread = gateway.jvm.java.lang.Thread(target)
    thread.start()
    thread.join()
    return target.calls


def reply(port: int, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
        try:
            stranger.sendall(request)
            stranger.shutdown(socket.SHUT_WR)
            return stranger.recv(65536)
        except OSError as error:
            if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):  # closed before or meanwhile
                raise
            return b""


@pytest.mark.shows("only the JVM can call back; a listener on a dead JVM's port gets no data and is not believed")
def test_only_the_jvm_may_call_back_on_the_port_that_the_engine_holds(gateway: Any) -> None:
    target = Runnable()
    with held_port() as held:
        port = held.getsockname()[1]
        authenticate(gateway, port)

        assert gateway._callback_server.port == port
        assert called(gateway, target) == 1, "the JVM knows the token"
        call = b"c\np0\nrun\ne\n"
        assert reply(port, call) == b""
        assert reply(port, b"A\nguessed\ne\n" + call).rstrip() in (b"", b"!xn", b"!x")
        assert target.calls == 1
        assert called(gateway, target) == 2


_TAKES_THE_PORT = f"""
{BECOME_NOBODY}
options = [(), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]
for each in options:
    with socket.socket(socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET) as listener:
        if ":" in sys.argv[2]:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        for option in each:
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            listener.bind((sys.argv[2], int(sys.argv[1])))
            listener.listen()
        except OSError as error:
            print(error.errno, flush=True)
            continue
        print("listens", flush=True)
        peer, _ = listener.accept()
        print(peer.recv(65536), flush=True)
        peer.sendall(b"!yv\\n")
        print(peer.recv(65536), flush=True)
        break
"""  # another user: listens on a port, takes what arrives, and answers as a JVM that accepts the token


@contextmanager
def stranger_on(port: int, address: str = "127.0.0.1") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", _TAKES_THE_PORT, str(port), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as stranger:
        try:
            yield stranger
        finally:
            stranger.kill()


@needs_root
def test_what_another_user_answers_on_the_port_of_a_dead_jvm_is_not_taken_for_sparks(gateway: Any) -> None:
    guard_connections()
    guard_connections()
    port = gateway.gateway_parameters.port
    assert gateway.jvm.java.lang.Integer.valueOf(7) == 7
    assert owner_of_listener("127.0.0.1", port) == os.geteuid()

    gateway.proc.kill()
    gateway.proc.wait()
    with stranger_on(port) as stranger:
        assert stranger.stdout is not None
        assert any(line == "listens\n" for line in iter(stranger.stdout.readline, ""))
        with pytest.raises(ConnectionRefusedError, match=f"belongs to uid {NOBODY} now, not to this user"):
            gateway.jvm.java.lang.Integer.valueOf(7)
        assert stranger.stdout.readline() == "b''\n", "nothing is sent, the token neither"


@pytest.mark.shows("another user's listener on another address does not block access to the JVM")
@needs_root
@pytest.mark.parametrize("address", ["127.0.0.2", "::"])
def test_a_strangers_listener_on_another_address_does_not_lock_workers_out(one_gateway: Any, address: str) -> None:
    guard_connections()
    port = one_gateway.gateway_parameters.port

    with stranger_on(port, address) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "listens\n"
        [other] = socket.getaddrinfo("::1" if address == "::" else address, port, type=socket.SOCK_STREAM)
        assert owner_of_listener(*other[4][:2]) == NOBODY
        one_gateway.shutdown_callback_server()
        one_gateway.close(keep_callback_server=True)  # so that the next call connects again

        assert one_gateway.jvm.java.lang.Integer.valueOf(7) == 7


@pytest.mark.shows(
    "connections without the token, silent ones or byte by byte, keep nobody from a JVM, and are bounded"
)
def test_connections_without_a_token_do_not_keep_workers_from_a_jvm(one_gateway: Any) -> None:
    # The opener does not matter: to find it, Java would have to search all sockets of the machine.
    port = one_gateway.gateway_parameters.port
    with ExitStack() as silent:
        peers = [silent.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(300)]
        peers[-1].sendall(b"A\n")
        assert one_gateway.jvm.java.lang.Integer.valueOf(7) == 7

        one_gateway.close(keep_callback_server=True)  # so that the next call connects again

        assert one_gateway.jvm.java.lang.Integer.valueOf(7) == 7
        ended = [each for each in peers[:300] if select.select([each], [], [], 0)[0]]
        assert set(peers[:40]) <= set(ended), "256 may wait, the newest"
        peers[-1].sendall(b"x" * 65)
        assert select.select([peers[-1]], [], [], 10)[0], "as many bytes as the token has, and others"


_IS_SILENT = f"""
{BECOME_NOBODY}
with socket.socket() as peer:
    peer.connect(("127.0.0.1", int(sys.argv[1])))
    print("connected", flush=True)
    sys.stdin.read()
"""


@needs_root
def test_another_user_who_is_connected_and_silent_holds_up_no_accumulators() -> None:
    from pyspark.accumulators import _start_update_server

    token = "0" * 64
    server = _start_update_server(token, False)
    serve_this_user(server)
    port = server.server_address[1]
    command = [sys.executable, "-c", _IS_SILENT, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"connected\n"

        with socket.create_connection(("127.0.0.1", port), timeout=10) as jvm:
            jvm.sendall(token.encode() + struct.pack("!i", 0))
            assert jvm.recv(1) == b"\x01"
        stranger.kill()
    server.shutdown()
    server.server_close()


def test_a_task_is_served_for_this_user_while_the_other_end_is_there() -> None:
    serve = for_own_user(lambda connection, is_authenticated: 7)
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert is_own(accepted)
            assert serve(accepted, False) == 7

            peer.close()

            assert not is_own(accepted)
            assert serve(accepted, False) == 1
            assert accepted.fileno() == -1


@pytest.mark.shows("an out-of-memory exit names the heap and its setting, and the next JVM plans for it")
def test_a_jvm_out_of_memory_is_named_and_noted_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    settings = driver(tmp_path, driver_memory="512m")
    settings.scratch_dir.mkdir(parents=True)
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "64m")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+ExitOnOutOfMemoryError")
    with running_gateway() as gateway:
        monkeypatch.setattr(SparkContext, "_gateway", gateway)

        with pytest.raises((Py4JError, OSError)) as raised:
            gateway.new_array(gateway.jvm.byte, 128 << 20)

        lost = why_lost(raised.value, settings, "engine.heap")
        assert lost == "out of memory (heap 512m): raise engine.heap"
    assert memory_exits(settings).read_bytes() == b"."


def test_the_java_classes_are_what_their_sources_compile_to(one_gateway: Any) -> None:
    assert compiled(one_gateway.jvm) == {
        str(path.relative_to(JAVA_CLASSES)): path.read_bytes() for path in JAVA_CLASSES.rglob("*.class")
    }, "python -m tests.java_classes"


@needs_root
def test_the_callback_port_of_a_worker_is_free_after_its_end() -> None:
    """The engine keeps the port until its JVM stops calling there."""
    with held_port() as held:
        port = held.getsockname()[1]
        with socket.socket() as worker:  # as Py4J listens
            worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            worker.bind(("127.0.0.1", port))
            worker.listen()
            socket.create_connection(("127.0.0.1", port)).close()

        with stranger_on(port) as stranger:
            assert stranger.stdout is not None
            assert stranger.stdout.read().split() == ["98"] * 4, "EADDRINUSE"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


@pytest.mark.shows("an ended worker leaves no listener in the engine")
def test_a_worker_that_has_ended_leaves_no_listener_in_the_engine(one_gateway: Any) -> None:
    gateway = one_gateway
    builder = gateway.jvm.org.apache.spark.sql.SparkSession.builder().master("local[1]").appName("engine")
    for name, value in (("ui.enabled", "false"), ("driver.host", "127.0.0.1"), ("driver.bindAddress", "127.0.0.1")):
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    bus = spark.sparkContext().listenerBus()
    guests = Guests(cast("SparkSession", SimpleNamespace(
        _jsparkSession=spark,
        sparkContext=SimpleNamespace(_jvm=gateway.jvm, _gateway=gateway, _jsc=SimpleNamespace(sc=spark.sparkContext)),
    )))  # fmt: skip
    spark.newSession()  # the first one brings listeners that all share
    before = bus.listeners().size()
    try:
        for name in ("worker-0", "worker-1", "worker-0"):
            with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as worker:
                guests.admit(name, process_identity(worker.pid))
                guests.count()
                assert bus.listeners().size() > before
            guests.wait(30)
            eventually(lambda: bus.listeners().size() == before)
    finally:
        guests.close()
        spark.stop()


_RECORDS = """
import signal, sys
from kctl_agent.spark.class_archive import record
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
record()
"""


@pytest.mark.long
def test_a_jvm_of_spark_that_is_given_up_while_it_starts_ends_with_the_process() -> None:
    """PySpark alone leaves it running for ever: two such JVMs were found after two hours."""
    with subprocess.Popen([sys.executable, "-c", _RECORDS], stderr=subprocess.DEVNULL) as process:
        recorder = psutil.Process(process.pid)

        def jvms() -> list[psutil.Process]:
            children = recorder.children(recursive=True)
            return [each for each in children if "-XX:ArchiveClassesAtExit=" in " ".join(command_line(each))]

        [jvm] = eventually(jvms, 60, "its JVM starts")
        process.terminate()
        assert process.wait(60) == 1

    eventually(lambda: not alive([jvm]), 60, "the JVM has ended")
