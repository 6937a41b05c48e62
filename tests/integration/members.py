"""Members of a real consumer group without Spark: the workers' own membership, and Kafka's console consumer."""

import subprocess
import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from kafka import TopicPartition

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.groups import Group, describe_groups
from kctl_agent.worker.consumer_group.membership import MemberFenced, Membership
from kctl_agent.worker.settings import KafkaSettings
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker, kafka_command


class Member:
    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self.revocations = 0
        self.fenced: MemberFenced | None = None
        self.membership = Membership(settings, name, self._revoked, lambda: None, lambda _offsets: None)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member-{name}")
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return self.membership.partitions

    @property
    def member_id(self) -> str:
        return self.membership.info.member_id or ""

    def _revoked(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        self.revocations += bool(partitions)
        return {}

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.membership.poll(0.05)
        except MemberFenced as error:
            self.fenced = error
        self.membership.close()


class ConsumerGroup:
    """`partitions` are numbers of partitions, one for each topic of the group's own."""

    def __init__(self, broker: KafkaBroker, *partitions: int) -> None:
        self.name = f"m{uuid.uuid4().hex[:8]}"
        self._broker = broker
        self._topics = {f"{self.name}-{number}": count for number, count in enumerate(partitions)}
        for topic, count in self._topics.items():
            topics.create_topic(broker.bootstrap_servers, topic, count)
        self.partitions = frozenset(TopicPartition(t, p) for t, count in self._topics.items() for p in range(count))
        self._members: list[Member] = []
        self._others: list[subprocess.Popen[bytes]] = []

    def settings(self, assignor: str = "range", instance: str | None = None) -> KafkaSettings:
        return KafkaSettings(
            bootstrap_servers=self._broker.bootstrap_servers,
            group=self.name,
            topics=tuple(self._topics),
            auto_offset_reset="earliest",
            assignor=assignor,
            session_timeout_seconds=60.0,  # on a busy machine a static member takes seconds to restart
            heartbeat_interval_seconds=0.2,
            isolation_level="read_uncommitted",
            group_instance_id=instance,
        )

    def join(self, name: str, assignor: str = "range", instance: str | None = None) -> Member:
        self._members.append(Member(self.settings(assignor, instance), name))
        return self._members[-1]

    def join_console_consumer(self, strategy: str) -> subprocess.Popen[bytes]:
        """`strategy` is a class name. The consumer subscribes to all topics of the group."""
        words = ["--bootstrap-server", self._broker.bootstrap_servers, "--group", self.name]
        words += ["--include", f"{self.name}-.*"]
        for key, value in {
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{strategy}",
            "heartbeat.interval.ms": "200",
            "metadata.max.age.ms": "1000",
        }.items():
            words += ["--command-property", f"{key}={value}"]
        self._others.append(
            subprocess.Popen(
                kafka_command("org.apache.kafka.tools.consumer.ConsoleConsumer", *words),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        return self._others[-1]

    def grow(self) -> None:
        for topic, count in self._topics.items():
            topics.add_partitions(self._broker.bootstrap_servers, topic, count + 1)
            self.partitions |= {TopicPartition(topic, count)}

    def described(self) -> Group:
        with ClusterConnection(plain(self._broker.bootstrap_servers), 10) as connection:
            connection.open()
            [group] = describe_groups(connection, [self.name])
        return group

    def shares(self) -> dict[str, frozenset[TopicPartition]]:
        """Partitions of all members, of any client. Empty while the group is not stable."""
        group = self.described()
        if group.state != "Stable":
            return {}
        return {
            member.member_id: frozenset(
                TopicPartition(topic, number)
                for topic, numbers in (member.assigned or {}).items()
                for number in numbers
            )
            for member in group.members or ()
        }

    def close(self) -> None:
        for other in self._others:
            other.kill()
            other.wait()
        for member in self._members:
            member.close()


def is_shared(members: Sequence[Member], partitions: Iterable[TopicPartition]) -> bool:
    infos = [member.membership.info for member in members]
    shares = [member.partitions for member in members]
    leaders = {info.leader for info in infos}
    held: list[Any] = [tp for share in shares for tp in share]
    return (
        sorted(held) == sorted(partitions)
        and len({info.generation for info in infos}) == 1
        and len(leaders) == 1
        and leaders <= {info.member_id for info in infos} - {None}
    )
