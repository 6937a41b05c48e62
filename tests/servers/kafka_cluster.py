"""A real Kafka cluster on 127.0.0.1: several brokers that are also controllers, with small heaps and three replicas."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kctl.demo.kafka_broker import free_ports, new_cluster_id
from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import quorum_leader
from tests.servers.kafka_broker import KafkaBroker

_HEAP = "256m"
_START_TIMEOUT_SECONDS = 120.0


class KafkaCluster:
    """Brokers 1, 2 and 3, of which two must run. Each dies with the thread that started it."""

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        """`properties` apply to every broker and override ours."""
        ports = free_ports(6)
        self.ports = {n: (ports[2 * n - 2], ports[2 * n - 1]) for n in (1, 2, 3)}
        shared = {
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{ports[1]}" for n, ports in self.ports.items()),
            "default.replication.factor": "3",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "share.coordinator.state.topic.replication.factor": "3",
            "controlled.shutdown.enable": "false",
            "replica.lag.time.max.ms": "5000",
            "log.cleaner.enable": "false",
        }
        cluster_id = new_cluster_id()
        self.brokers = {
            number: KafkaBroker(
                directory / f"broker-{number}", shared | {"node.id": str(number)} | dict(properties or {})
            )
            for number in self.ports
        }
        for broker in self.brokers.values():
            broker.cluster_id, broker.heap = cluster_id, _HEAP
            broker.start_timeout_seconds = _START_TIMEOUT_SECONDS

    @property
    def bootstrap_servers(self) -> str:
        """Includes brokers that do not run."""
        return ",".join(f"127.0.0.1:{ports[0]}" for ports in self.ports.values())

    def start(self) -> None:
        """Starts missing brokers at once. Returns when all answer, after about 10 s. Raises StartError with the last
        lines of a failing broker's log, JarsMissing, JavaMissing."""
        try:
            waits = [broker.launch(self.ports[number]) for number, broker in self.brokers.items() if broker.pid is None]
            for wait in waits:
                wait()
        except BaseException:
            self.kill()
            raise

    @contextmanager
    def connected(self) -> Iterator[ClusterConnection]:
        with ClusterConnection(plain(self.bootstrap_servers), 30) as connection:
            connection.open()
            yield connection

    def coordinator(self, group: str) -> int:
        with self.connected() as connection:
            node = connection.coordinators([group])[group]
        assert isinstance(node, int), node
        return node

    def controller(self) -> int:
        with self.connected() as connection:
            node = quorum_leader(connection)
        assert node is not None
        return node

    def kill(self) -> None:
        # A clean stop would wait for the others.
        for broker in self.brokers.values():
            broker.kill()

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@contextmanager
def running_cluster(properties: Mapping[str, str] | None = None) -> Iterator[KafkaCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="b", dir="/tmp", ignore_cleanup_errors=True) as folder,
        KafkaCluster(Path(folder), properties=properties) as running,
    ):
        yield running
