"""Where an application's queries read from, and how far the brokers are."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

__all__ = ["EndOffsets", "last_progress", "servers_of"]

_TIMEOUT_MS: Final = 5000
_MAX_DEPTH: Final = 200
Partition = tuple[str, int]


class EndOffsets:
    """Log starts and ends, asked by kafka-python's admin client. One thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        from kafka.admin import KafkaAdminClient

        self._admin = KafkaAdminClient(
            bootstrap_servers=bootstrap_servers, client_id="kctl-attached", request_timeout_ms=_TIMEOUT_MS
        )

    def bounds(self, partitions: Collection[Partition]) -> tuple[dict[Partition, int], dict[Partition, int]]:
        """Log start and end offsets. Raises KafkaError."""
        from kafka import TopicPartition
        from kafka.admin import OffsetSpec

        wanted = [TopicPartition(*each) for each in partitions]
        starts = self._admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        ends = self._admin.list_partition_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        return (
            {(tp.topic, tp.partition): at.offset for tp, at in starts.items()},
            {(tp.topic, tp.partition): at.offset for tp, at in ends.items()},
        )

    def close(self) -> None:
        self._admin.close()


def last_progress(query: Any) -> str | None:
    """The last finished batch of a query as JSON; None before the first."""
    progress = query._jsq.lastProgress()  # noqa: SLF001 - the Python property changes its type between versions
    return None if progress is None else str(progress.json())


def servers_of(query: Any) -> str | None:
    """`kafka.bootstrap.servers` of a query's first Kafka source, out of its plan; None when that cannot be told."""
    try:
        plan = query._jsq.streamingQuery().analyzedPlan()  # noqa: SLF001 - there is no public way to a query's options
    except Exception:  # Spark Connect, or a version that calls it otherwise: then `bootstrap_servers` must be given
        return None
    waiting, looked = [plan], 0
    while waiting and looked < _MAX_DEPTH:
        node, looked = waiting.pop(), looked + 1
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


def _unused() -> str:
    return json.dumps(None)
