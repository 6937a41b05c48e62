"""The brokers of an application's queries, and their log offsets."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, Final

from kctl_agent.attached.partition_offsets import answered_offsets
from kctl_agent.kafka.clients import opened

_TIMEOUT_MS: Final = 5000
_STARTS_SECONDS: Final = 15.0
"""Seconds between questions for log starts: they move with retention only, and each question costs the application."""
_MAX_DEPTH: Final = 200
Partition = tuple[str, int]


class EndOffsets:
    """Log starts and ends, requested by kafka-python's admin client. For one thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        from kafka.admin import KafkaAdminClient

        self._admin = opened(
            KafkaAdminClient,
            bootstrap_servers=bootstrap_servers,
            client_id="kctl-attached",
            request_timeout_ms=_TIMEOUT_MS,
        )
        self._starts: dict[Partition, int] = {}
        self._starts_at = float("-inf")

    def bounds(self, partitions: Collection[Partition]) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """Log start and end offsets of the partitions that are answered for. Raises KafkaError when none is."""
        from kafka import TopicPartition
        from kafka.admin import OffsetSpec

        def asked(spec: OffsetSpec) -> dict[Partition, int]:
            found, _ = answered_offsets(self._admin, [TopicPartition(*each) for each in partitions], spec)
            return {(tp.topic, tp.partition): at.offset for tp, at in found.items()}

        now = time.monotonic()
        if now - self._starts_at >= _STARTS_SECONDS or self._starts.keys() != set(partitions):
            self._starts, self._starts_at = asked(OffsetSpec.EARLIEST), now
        return self._starts, asked(OffsetSpec.LATEST)

    def close(self) -> None:
        self._admin.close()


def last_progress(query: Any) -> str | None:
    """Returns the last finished batch of a query as JSON; None before the first."""
    progress = query._jsq.lastProgress()  # noqa: SLF001 - the Python property changes its type between versions
    return None if progress is None else str(progress.json())


def servers_of(query: Any) -> str | None:
    """Returns `kafka.bootstrap.servers` of a query's first Kafka source, out of its plan; None when it is not known."""
    try:
        plan = query._jsq.streamingQuery().analyzedPlan()  # noqa: SLF001 - there is no public way to a query's options
    except Exception:  # Spark Connect, or a version that calls it otherwise: then `bootstrap_servers` must be given
        return None
    waiting, seen = [plan], 0
    while waiting and seen < _MAX_DEPTH:
        node, seen = waiting.pop(), seen + 1
        if node.getClass().getSimpleName().startswith("StreamingRelation"):
            try:
                servers = node.extraOptions().get("kafka.bootstrap.servers")
            except Exception:  # a relation of another kind of source
                servers = None
            if servers:
                return str(servers)
        children = node.children()
        waiting += [children.apply(i) for i in range(children.size())]
    return None
