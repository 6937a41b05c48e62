"""A real Kafka broker (KRaft, broker and controller in one process) on 127.0.0.1, for the demo."""

import base64
import os
import random
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from kctl.children import dies_with_parent
from kctl.errors import StartError
from kctl.jars.java import java_command
from kctl.jars.lock import jar_paths

_LOG_CONFIG = Path(__file__).with_name("broker-log4j2.properties")
# C1 alone and the serial collector start a broker in 2.2 s instead of 2.7 s, and run a tool in 0.76 s instead of 0.9 s.
_QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
# Not the seeded generator, with which two processes of a test run would choose the same ports.
_chance = random.SystemRandom()
_POLL_SECONDS = 0.05

_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    # One node: one replica. One partition each for the coordinators: they load at once after a restart.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a SIGKILL the controller rejects the broker until its old session expires, by default 9 s.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    # With Kafka's 4 kB the first entries in the indexes of 400 partitions took 5 s of processor time.
    "log.index.interval.bytes": "131072",
    # The broker takes this buffer from the heap at once; the default is 128 MB.
    "log.cleaner.dedupe.buffer.size": "16777216",
}


def kafka_command(main_class: str, *arguments: str, heap: str = "256m", options: tuple[str, ...] = ()) -> list[str]:
    """Returns a command for `main_class` with the `broker` jars. Raises JavaMissing and the errors of `jar_paths`."""
    class_path = ":".join(str(jar) for jar in jar_paths("broker"))
    logging = f"-Dlog4j2.configurationFile={_LOG_CONFIG}"
    java = [str(java_command()), *_QUICK_START, *options, f"-Xmx{heap}", logging]
    return [*java, "-cp", class_path, main_class, *arguments]


class KafkaBroker:
    """A broker with all its files in `directory`: data/, server.properties, broker.log. A formatted directory is reused
    with its topics and groups.

    The first start chooses the ports, and later starts reuse them. Ctrl-C does not reach the process. The process gets
    SIGKILL when the *thread* that called `start` ends.
    """

    heap = "512m"
    java_options: tuple[str, ...] = ()
    start_timeout_seconds = 60.0

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None, port: int | None = None) -> None:
        """`properties` override the broker properties that kctl sets. `port` defaults to any free port."""
        self._directory = directory.absolute()
        self._extra = dict(properties or {})
        self.cluster_id = new_cluster_id()
        self._ports: tuple[int, int] | None = None
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:PORT`, known after the first start."""
        if self._ports is None:
            raise RuntimeError("this broker was never started: it has no port yet")
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def log_path(self) -> Path:
        return self._directory / "broker.log"

    def start(self) -> None:
        """Formats a new data directory, starts the broker, and returns when it answers (2 to 3 s). Raises StartError
        (with the end of the broker's log) and the errors of `kafka_command`."""
        broker, controller = self._ports or two_free_ports()
        self.launch((self._port or broker, controller))()

    def ended(self) -> int | None:
        """Returns the exit code (negative for a signal) if the broker has ended by itself, otherwise None."""
        return self._process.poll() if self._process else None

    def stop(self, timeout_seconds: float = 20.0) -> None:
        """Asks a running broker to shut down. Kills the broker after `timeout_seconds`."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Sends SIGKILL to a running broker, which then cannot flush its data."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def launch(self, ports: tuple[int, int]) -> Callable[[], None]:
        """Starts the broker and returns a function that waits until it answers. Launch all brokers of a cluster before
        you wait for one, because each answers only when most run. Both functions raise the errors of `start`."""
        if self._process is not None:
            raise RuntimeError("this broker runs already")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._ports = ports
        deadline = time.monotonic() + self.start_timeout_seconds
        log_start = self._log_size()
        properties = self._write_properties(ports)
        with self.log_path.open("ab") as log:
            if not (self._directory / "data" / "meta.properties").exists():
                self._format(properties, log.fileno(), log_start)
            command = kafka_command("kafka.Kafka", str(properties), heap=self.heap, options=self.java_options)
            self._process = subprocess.Popen(
                [*dies_with_parent("KILL"), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        process = self._process

        def wait() -> None:
            try:
                self._wait_until_it_answers(process, ports[0], deadline, log_start)
            except BaseException:
                self.kill()
                raise

        return wait

    def _format(self, properties: Path, log: int, log_start: int) -> None:
        words = ("format", "-t", self.cluster_id, "-c", str(properties))
        command = kafka_command("kafka.tools.StorageTool", *words, options=self.java_options)
        tool = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, process_group=0)
        if tool.returncode != 0:
            raise StartError(self._failure("its data directory could not be formatted", log_start))

    def _write_properties(self, ports: tuple[int, int]) -> Path:
        broker, controller = (f"127.0.0.1:{port}" for port in ports)
        properties = _PROPERTIES | {
            "listeners": f"BROKER://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"BROKER://{broker}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self._directory / "data"),
        }
        path = self._directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in (properties | self._extra).items()))
        return path

    def _wait_until_it_answers(
        self, process: subprocess.Popen[bytes], port: int, deadline: float, log_start: int
    ) -> None:
        while time.monotonic() < deadline:
            try:
                exit_code = process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                # Check the broker's own log first, because another process may listen on this port.
                if "Kafka Server started" in self._log_since(log_start) and _answers(port):
                    return
            else:
                raise StartError(self._failure(f"it ended with exit code {exit_code}", log_start))
        raise StartError(self._failure(f"no answer after {self.start_timeout_seconds:.0f} s", log_start))

    def _failure(self, what: str, log_start: int) -> str:
        lines = [line for line in self._log_since(log_start).splitlines() if not line.startswith("\tat ")]
        shown = [line[:300] for line in lines[-12:]]
        return "\n  ".join([f"the Kafka broker did not start: {what}; the end of {self.log_path}:", *shown])

    def _log_size(self) -> int:
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def _log_since(self, start: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")


def new_cluster_id() -> str:
    # Begins with `k`, because Kafka's tools would take an id with a leading dash for an option.
    return "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def two_free_ports() -> tuple[int, int]:
    broker, controller = free_ports(2)
    return broker, controller


def free_ports(count: int) -> list[int]:
    """Returns different free TCP ports of 127.0.0.1. A later call may return the same ports."""
    with ExitStack() as held:
        return [_bind_somewhere(held.enter_context(socket.socket())) for _ in range(count)]


def _bind_somewhere(listener: socket.socket) -> int:
    while True:
        # From 32768 on, an outgoing connection could take the port while its broker restarts.
        port = _chance.randrange(20000, 32000)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port


def _answers(port: int) -> bool:
    try:
        with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}", bootstrap_timeout_ms=10_000) as admin:
            return bool(admin.describe_cluster()["brokers"])
    except (OSError, KafkaError):
        return False
