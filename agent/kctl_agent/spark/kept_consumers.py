"""The number of Kafka consumers that a driver's JVM keeps from batch to batch: as many as its heap can hold.

Each partition has a consumer, which knows all partitions of its topic: 65 kB and 650 bytes for each of these, measured
with kafka-clients 3.9.2 (benchmarks/README.md). 1,000 of a topic of 1,000 partitions fill a heap of 512 MB.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kctl_agent.spark.conf import KEPT_CONSUMERS, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPACITY = "spark.kafka.consumer.cache.capacity"
CONSUMER_BYTES, PARTITION_BYTES = 65_000, 650
HEAP_SHARE = 0.5
LEAST = 64
"""Spark's own default for kept consumers."""


def limit_kept_consumers(session: SparkSession, topics: Collection[int]) -> str | None:
    """Limits the pool of consumers of a local driver, before its first batch: the pool takes its limit from the
    configuration once, when it is made. `topics` are the numbers of partitions of the topics that are read. Returns a
    sentence where fewer are kept than there are partitions; a limit that the user has set stays."""
    context = session.sparkContext
    if not is_local(context.master):
        return None
    conf = context._jvm.org.apache.spark.SparkEnv.get().conf()  # noqa: SLF001 - PySpark has no other way to its JVM
    if conf.get(CAPACITY) != str(KEPT_CONSUMERS):
        return None
    heap = context._jvm.java.lang.Runtime.getRuntime().maxMemory()  # noqa: SLF001
    kept = kept_consumers(topics, int(heap * HEAP_SHARE))
    conf.set(CAPACITY, str(kept))
    if kept >= sum(topics):
        return None
    needed = _bytes(topics) / HEAP_SHARE
    return (
        f"{kept:,} of {sum(topics):,} consumers are kept between batches, and the others are reopened for each: to "
        f"keep all, the JVM needs a heap of {needed / (1 << 20):,.0f} MB and has {heap / (1 << 20):,.0f} (engine.heap, "
        "spark.driver_memory)"
    )


def kept_consumers(topics: Collection[int], room: int) -> int:
    """Returns how many consumers of these topics fit into so many bytes."""
    if _bytes(topics) <= room:
        return max(sum(topics), KEPT_CONSUMERS)
    return max(room // _of_one(max(topics)), LEAST)


def _bytes(topics: Collection[int]) -> int:
    return sum(partitions * _of_one(partitions) for partitions in topics)


def _of_one(partitions: int) -> int:
    return CONSUMER_BYTES + PARTITION_BYTES * partitions
