"""The number of Kafka consumers that a driver's JVM keeps from batch to batch: as many as its heap can hold.

Each partition has a consumer, which knows all partitions of its topic: 65 kB and 650 bytes for each of these, measured
with kafka-clients 3.9.2 (benchmarks/README.md). 1,000 of a topic of 1,000 partitions fill a heap of 512 MB.

A consumer also keeps the last records that it has fetched, at least one, however large. Their size is not known before
they are read. So each exit of the JVM for lack of memory is noted, and the next JVM keeps a quarter of the consumers.
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
"""Spark's own default for kept consumers."""
FETCHED_BYTES = 1 << 20
"""What a consumer is taken to hold of fetched records: four times as much after each exit for lack of memory. It holds
the record that was read last and the next one, and a broker takes 1 MB by default (`message.max.bytes`)."""


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
    """Returns how many consumers of these topics fit into so many bytes, if each holds `fetched` bytes of records."""
    if _bytes(topics, fetched) <= room:
        return max(sum(topics), KEPT_CONSUMERS)
    return max(room // _of_one(max(topics), fetched), 1 if fetched else LEAST)


def _bytes(topics: Collection[int], fetched: int) -> int:
    return sum(partitions * _of_one(partitions, fetched) for partitions in topics)


def _of_one(partitions: int, fetched: int) -> int:
    return CONSUMER_BYTES + PARTITION_BYTES * partitions + fetched
