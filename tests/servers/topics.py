"""Topics of a test broker. Each function opens an admin client, and blocks for 50 ms to some seconds until the change
is visible. It raises kafka.errors.KafkaError as the broker answers."""

from collections.abc import Mapping
from contextlib import closing

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import InvalidMetadataError

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.offsets import commit as commit_offsets
from kctl.kafka.offsets import committed as committed_offsets
from tests.conftest import eventually


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int,
    configs: Mapping[str, str] | None = None,
    *,
    replicas: int = -1,
) -> None:
    """Replicas are the brokers' default unless given. Waits until every leader has answered."""
    topic = {"num_partitions": partitions, "replication_factor": replicas, "configs": dict(configs or {})}
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics({name: topic})
        wait_for_leaders(admin, name, partitions)


def wait_for_leaders(admin: KafkaAdminClient, name: str, partitions: int) -> None:
    def is_visible() -> bool:
        [topic] = admin.describe_topics([name])
        return len(topic["partitions"]) == partitions

    def all_answer() -> bool:
        # Each request goes to any broker, and a lagging broker denies what another has already shown.
        try:
            admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        except InvalidMetadataError:
            return False
        return True

    wanted = [TopicPartition(name, number) for number in range(partitions)]
    eventually(is_visible, 30, f"topic {name} has {partitions} partitions")
    admin.wait_for_topics([name], timeout_ms=30_000)
    eventually(all_answer, 30, f"every partition of topic {name} answers")


def add_partitions(bootstrap_servers: str, name: str, total: int) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_partitions({name: total})
        wait_for_leaders(admin, name, total)


def delete_topic(bootstrap_servers: str, name: str) -> None:
    """Waits until the broker no longer knows the topic. Raises UnknownTopicOrPartitionError."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.delete_topics([name])
        eventually(lambda: not _is_known(admin, name), 30, f"topic {name} is gone")


def has_topic(bootstrap_servers: str, name: str) -> bool:
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        return _is_known(admin, name)


def delete_records(bootstrap_servers: str, name: str, before: Mapping[int, int]) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(name, partition): offset for partition, offset in before.items()})


def produce(bootstrap_servers: str, name: str, counts: Mapping[int, int], at_ms: int | None = None) -> None:
    """Values are `0`, `1`, and so on, in each partition. With `at_ms`, timestamps begin there, a millisecond apart."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap_servers)) as producer:
        for partition, count in counts.items():
            for number in range(count):
                at = None if at_ms is None else at_ms + number
                producer.send(name, str(number).encode(), partition=partition, timestamp_ms=at)
        producer.flush()


def commit(bootstrap_servers: str, group: str, name: str, offsets: Mapping[int, int]) -> None:
    with ClusterConnection(plain(bootstrap_servers), 30) as connection:
        connection.open()
        errors = commit_offsets(connection, group, {(name, number): offset for number, offset in offsets.items()})
    assert set(errors.values()) == {None}


def committed(bootstrap_servers: str, group: str) -> dict[tuple[str, int], int | None]:
    with ClusterConnection(plain(bootstrap_servers), 30) as connection:
        connection.open()
        found = committed_offsets(connection, {group: None})[group]
    assert isinstance(found, dict)
    return {key: each.offset for key, each in found.items()}


def _is_known(admin: KafkaAdminClient, name: str) -> bool:
    return any(topic["name"] == name and topic["error_code"] == 0 for topic in admin.describe_topics([name]))
