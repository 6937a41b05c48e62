"""Topics of a test broker: each function opens its own admin client and returns when the change is visible.

All of them block for 50 ms to some seconds and raise kafka.errors.KafkaError as the broker answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.offsets import commit as commit_offsets
from kctl.testing.topics import create_topic, wait_for_leaders, wait_until

__all__ = ["add_partitions", "commit", "create_topic", "delete_records", "delete_topic", "has_topic", "produce"]


def add_partitions(bootstrap_servers: str, name: str, total: int, *, timeout_seconds: float = 30.0) -> None:
    """Increases the number of partitions to `total`; on return all of them answer."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_partitions({name: total})
        wait_for_leaders(admin, name, total, timeout_seconds)


def delete_topic(bootstrap_servers: str, name: str, *, timeout_seconds: float = 30.0) -> None:
    """Deletes a topic; on return the broker does not know it any more. Raises UnknownTopicOrPartitionError."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.delete_topics([name])
        wait_until(lambda: not _is_known(admin, name), f"topic {name} is still there", timeout_seconds)


def has_topic(bootstrap_servers: str, name: str) -> bool:
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        return _is_known(admin, name)


def delete_records(bootstrap_servers: str, name: str, before: Mapping[int, int]) -> None:
    """Deletes the records below an offset, per partition: what retention does, at a moment of our choice."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(name, partition): offset for partition, offset in before.items()})


def produce(bootstrap_servers: str, name: str, counts: Mapping[int, int]) -> None:
    """So many messages into each partition: `0`, `1`, and so on."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap_servers)) as producer:
        for partition, count in counts.items():
            for number in range(count):
                producer.send(name, str(number).encode(), partition=partition)
        producer.flush()


def commit(bootstrap_servers: str, group: str, name: str, offsets: Mapping[int, int]) -> None:
    """For a group without members."""
    with ClusterConnection(plain(bootstrap_servers), 30) as connection:
        connection.open()
        errors = commit_offsets(connection, group, {(name, number): offset for number, offset in offsets.items()})
    assert set(errors.values()) == {None}


def _is_known(admin: KafkaAdminClient, name: str) -> bool:
    return any(topic["name"] == name and topic["error_code"] == 0 for topic in admin.describe_topics([name]))
