"""Limits the Kafka consumers that a driver's JVM keeps between batches to the capacity of its heap.

Each partition has a consumer, which knows all partitions of its topic: 65 kB, and 650 bytes for each of these, measured
with kafka-clients 3.9.2 (benchmarks/README.md). It also keeps its last fetched records, whose size is unknown until
they are read. So each out-of-memory exit is recorded, and the next JVM keeps a quarter of the consumers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kctl_agent.spark.conf import KEPT_CONSUMERS, MEMORY_EXITS, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CAPACITY = "spark.kafka.consumer.cache.capacity"
CONSUMER_BYTES, PARTITION_BYTES = 65_000, 650
HEAP_SHARE = 0.5
LEAST = 64
"""Spark's default capacity."""
FETCHED_BYTES = 1 << 20
"""The assumed size of a consumer's fetched records, multiplied by four after each out-of-memory exit. A consumer keeps
the last and the next record, and brokers accept 1 MB by default (`message.max.bytes`)."""


def limit_kept_consumers(session: SparkSession, topics: Collection[int]) -> str | None:
    """Limits the pool of consumers. Call it before the first batch, because the pool reads its limit once. `topics`:
    their numbers of partitions. Returns a sentence if not all consumers are kept."""
    context = session.sparkContext
    if not is_local(context.master):
        return None
    conf = context._jvm.org.apache.spark.SparkEnv.get().conf()  # noqa: SLF001 - PySpark has no other way to its JVM
    if conf.get(CAPACITY) != str(KEPT_CONSUMERS):
        return None
    heap = context._jvm.java.lang.Runtime.getRuntime().maxMemory()  # noqa: SLF001
    exits = int(conf.get(MEMORY_EXITS, "0"))
    fetched = FETCHED_BYTES << 2 * exits if exits else 0
    kept = kept_consumers(topics, int(heap * HEAP_SHARE), fetched)
    conf.set(CAPACITY, str(kept))
    if kept >= sum(topics):
        return None
    needed = _bytes(topics, fetched) / HEAP_SHARE
    return (
        f"{kept:,} of {sum(topics):,} consumers are kept between batches, and the others are reopened for each: to "
        f"keep all, the JVM needs a heap of {needed / (1 << 20):,.0f} MB and has {heap / (1 << 20):,.0f} (engine.heap, "
        "spark.driver_memory)"
    )


def kept_consumers(topics: Collection[int], room: int, fetched: int) -> int:
    if _bytes(topics, fetched) <= room:
        return max(sum(topics), KEPT_CONSUMERS)
    return max(room // _of_one(max(topics), fetched), 1 if fetched else LEAST)


def _bytes(topics: Collection[int], fetched: int) -> int:
    return sum(partitions * _of_one(partitions, fetched) for partitions in topics)


def _of_one(partitions: int, fetched: int) -> int:
    return CONSUMER_BYTES + PARTITION_BYTES * partitions + fetched
