"""Topics of a demo or test broker: each function opens its own admin client and returns when the change is visible.

All of them block for 50 ms to some seconds and raise kafka.errors.KafkaError as the broker answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import InvalidMetadataError, KafkaTimeoutError

__all__ = ["add_partitions", "create_topic", "delete_records", "delete_topic", "has_topic"]

_POLL_SECONDS = 0.05


def create_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int,
    configs: Mapping[str, str] | None = None,
    *,
    timeout_seconds: float = 30.0,
) -> None:
    """Creates a topic with as many replicas as the brokers give by default; on return every leader has answered.

    Raises TopicAlreadyExistsError.
    """
    topic = {"num_partitions": partitions, "configs": dict(configs or {})}
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics({name: topic})
        _wait_for_leaders(admin, name, partitions, timeout_seconds)


def add_partitions(bootstrap_servers: str, name: str, total: int, *, timeout_seconds: float = 30.0) -> None:
    """Increases the number of partitions to `total`; on return all of them answer."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_partitions({name: total})
        _wait_for_leaders(admin, name, total, timeout_seconds)


def delete_topic(bootstrap_servers: str, name: str, *, timeout_seconds: float = 30.0) -> None:
    """Deletes a topic; on return the broker does not know it any more. Raises UnknownTopicOrPartitionError."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.delete_topics([name])
        _wait_until(lambda: not _is_known(admin, name), f"topic {name} is still there", timeout_seconds)


def has_topic(bootstrap_servers: str, name: str) -> bool:
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        return _is_known(admin, name)


def delete_records(bootstrap_servers: str, name: str, before: Mapping[int, int]) -> None:
    """Deletes the records below an offset, per partition: what retention does, at a moment of our choice."""
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(name, partition): offset for partition, offset in before.items()})


def _is_known(admin: KafkaAdminClient, name: str) -> bool:
    return any(topic["name"] == name and topic["error_code"] == 0 for topic in admin.describe_topics([name]))


def _wait_for_leaders(admin: KafkaAdminClient, name: str, partitions: int, timeout_seconds: float) -> None:
    def is_visible() -> bool:
        [topic] = admin.describe_topics([name])
        return len(topic["partitions"]) == partitions

    def all_answer() -> bool:
        """Each request goes to any broker, and one that lags behind denies what another has already shown."""
        try:
            admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        except InvalidMetadataError:
            return False
        return True

    wanted = [TopicPartition(name, number) for number in range(partitions)]
    _wait_until(is_visible, f"topic {name} does not have {partitions} partitions yet", timeout_seconds)
    admin.wait_for_topics([name], timeout_ms=int(timeout_seconds * 1000))
    _wait_until(all_answer, f"not every partition of topic {name} answers", timeout_seconds)


def _wait_until(is_done: Callable[[], bool], otherwise: str, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise KafkaTimeoutError(f"{otherwise} after {timeout_seconds:.0f} s")
        threading.Event().wait(_POLL_SECONDS)
