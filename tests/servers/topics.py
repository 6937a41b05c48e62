"""Topics of a test broker: each function opens its own admin client and returns when the change is visible.

All of them block for 50 ms to some seconds and raise kafka.errors.KafkaError as the broker answers.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka import KafkaAdminClient, TopicPartition

from kctl.testing.topics import create_topic, wait_for_leaders, wait_until

__all__ = ["add_partitions", "create_topic", "delete_records", "delete_topic", "has_topic"]


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


def _is_known(admin: KafkaAdminClient, name: str) -> bool:
    return any(topic["name"] == name and topic["error_code"] == 0 for topic in admin.describe_topics([name]))
