"""The streaming source of a query: partitions, start offsets and the options of its Kafka consumers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka import TopicPartition

from kctl_agent.kafka.security import spark_options
from kctl_agent.worker.settings import KafkaSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.readwriter import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

HELD_BYTES, HELD_RECORDS = 32 << 20, 50_000
LEAST_BYTES, MOST_BYTES = 64 << 10, 1 << 20
LEAST_RECORDS, MOST_RECORDS = 50, 2000
"""Bounds of the records that a query's consumers hold before a task needs them: in total (up to twice as much), and for
each.

With Kafka's 1 MB and 2,000 records each, consumers of 400 partitions filled a heap of 512 MB; with 500 records a batch
over few partitions took a quarter to a third longer (benchmarks/README.md). A larger record is still fetched (KIP-74).
"""
REQUEST_TIMEOUT_MS = 10_000
"""Spark's AdminClient waits this long (by default a minute) for a killed leader that is no longer in the metadata; then
it learns of the next leader."""

FETCH_WAIT_MS = 1
"""How long a broker holds an empty fetch (`fetch.max.wait.ms`); Spark's request for ends waits for it. With 500 ms each
partition without lag took half a second longer; with 10 ms a message into one of 400 waited 7.0 instead of 2.8 s
(benchmarks/README.md)."""

WITHOUT_METRICS = {"kafka.enable.metrics.push": "false", "kafka.auto.include.jmx.reporter": "false"}
"""With KIP-714 and JMX opening a consumer takes 7.5 instead of 5.2 ms (benchmarks/README.md)."""


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Where reading a partition begins. `version` is the partition's `StoredOffset.version` at that time."""

    start: int
    topic_id: str | None
    version: int = 0


def kafka_source(
    session: SparkSession,
    kafka: KafkaSettings,
    sources: Mapping[TopicPartition, KafkaSource],
    max_records: int,
    wait_seconds: float,
) -> DataFrame:
    """Returns the streaming source, whose batches wait up to `wait_seconds` for `max_records`."""
    starts = {tp: source.start for tp, source in sources.items()}
    more: dict[str, str | int] = {
        "minOffsetsPerTrigger": max_records,
        "maxTriggerDelay": f"{int(wait_seconds * 1000)}ms",
    }
    return _loaded(session.readStream, kafka, starts, maxOffsetsPerTrigger=max_records, **more)


def kafka_range(
    session: SparkSession, kafka: KafkaSettings, ranges: Mapping[TopicPartition, tuple[int, int]], name: str
) -> DataFrame:
    """Returns the records of `ranges` (ends are exclusive). Calls with the same group id `name` share consumers."""
    more: dict[str, str | int] = {
        "endingOffsets": _by_topic({tp: end for tp, (_, end) in ranges.items()}),
        "kafka.group.id": name,
        "kafka.max.poll.records": LEAST_RECORDS,  # the pool needs equal settings for one name
        "kafka.max.partition.fetch.bytes": LEAST_BYTES,
    }
    return _loaded(session.read, kafka, {tp: start for tp, (start, _) in ranges.items()}, **more)


def _loaded(
    reader: DataFrameReader | DataStreamReader,
    kafka: KafkaSettings,
    starts: Mapping[TopicPartition, int],
    **more: str | int,
) -> DataFrame:
    assign: dict[str, list[int]] = {}
    for tp in sorted(starts):
        assign.setdefault(tp.topic, []).append(tp.partition)
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.isolation.level", kafka.isolation_level)
        .options(**spark_options(kafka.security))
        .option("assign", json.dumps(assign))
        .option("startingOffsets", _by_topic(starts))
        .option("failOnDataLoss", True)  # lost records are handled when a query begins
        .option("includeHeaders", True)
        .option("kafka.max.poll.records", _share(HELD_RECORDS, len(starts), LEAST_RECORDS, MOST_RECORDS))
        .option("kafka.max.partition.fetch.bytes", _share(HELD_BYTES, len(starts), LEAST_BYTES, MOST_BYTES))
        .option("kafka.fetch.max.wait.ms", FETCH_WAIT_MS)
        .options(**WITHOUT_METRICS)
        .option("kafka.request.timeout.ms", REQUEST_TIMEOUT_MS)
        .option("kafka.default.api.timeout.ms", REQUEST_TIMEOUT_MS)
        .options(**more)
        .load()
    )


def _by_topic(offsets: Mapping[TopicPartition, int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        found.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return json.dumps(found)


def _share(of: int, partitions: int, least: int, most: int) -> int:
    return min(max(of // partitions, least), most)
