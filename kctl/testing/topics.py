"""Topics of a demo broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import InvalidMetadataError, KafkaTimeoutError

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

    Raises kafka.errors.KafkaError as the broker answers.
    """
    topic = {"num_partitions": partitions, "configs": dict(configs or {})}
    with KafkaAdminClient(bootstrap_servers=bootstrap_servers) as admin:
        admin.create_topics({name: topic})
        wait_for_leaders(admin, name, partitions, timeout_seconds)


def wait_for_leaders(admin: KafkaAdminClient, name: str, partitions: int, timeout_seconds: float) -> None:
    """Returns when every partition of the topic has a leader that answers."""

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
    wait_until(is_visible, f"topic {name} does not have {partitions} partitions yet", timeout_seconds)
    admin.wait_for_topics([name], timeout_ms=int(timeout_seconds * 1000))
    wait_until(all_answer, f"not every partition of topic {name} answers", timeout_seconds)


def wait_until(is_done: Callable[[], bool], otherwise: str, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise KafkaTimeoutError(f"{otherwise} after {timeout_seconds:.0f} s")
        threading.Event().wait(_POLL_SECONDS)
