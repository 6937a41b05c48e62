"""Reads records with a plain consumer if Spark or the transform cannot read them."""

import logging
from collections.abc import Collection, Iterator
from contextlib import closing
from itertools import takewhile

from kafka import KafkaConsumer, TopicPartition

from kctl_agent.kafka.clients import opened
from kctl_agent.kafka.errors import reason
from kctl_agent.message import Message
from kctl_agent.worker.settings import KafkaSettings

log = logging.getLogger(__name__)

MOST_MILLISECONDS = (2**63 - 1) // 1000
"""Spark counts microseconds in 64 bits: its source fails at a larger timestamp, such as one in nanoseconds, before any
transform runs."""


def is_readable(timestamp: int) -> bool:
    return abs(timestamp) <= MOST_MILLISECONDS


def unreadable_records(kafka: KafkaSettings, tp: TopicPartition, offset: int) -> list[Message]:
    try:
        found = _records(kafka, tp, offset)
    except Exception as error:  # kafka-python raises anything for bytes that it cannot parse
        log.warning("%s-%d offset %d cannot be read: %s", *tp, offset, reason(error))
        return []
    if not found or found[0].offset != offset:
        return []
    return list(takewhile(lambda each: not is_readable(each.timestamp), found)) or found[:1]


def _records(kafka: KafkaSettings, tp: TopicPartition, offset: int) -> list[Message]:
    settings = {"isolation_level": kafka.isolation_level, **kafka.security.client_settings()}
    consumer = opened(KafkaConsumer, bootstrap_servers=kafka.bootstrap_servers, enable_auto_commit=False, **settings)
    with closing(consumer):
        consumer.assign([tp])
        consumer.seek(tp, offset)
        return [
            Message(tp.topic, tp.partition, each.offset, each.key, each.value, each.timestamp, tuple(each.headers))
            for each in consumer.poll(timeout_ms=10_000).get(tp, ())
        ]


def other_offsets(
    tp: TopicPartition, positions: Collection[tuple[TopicPartition, int]]
) -> Iterator[tuple[TopicPartition, int]]:
    """Yields offsets to read after `tp` failed: first in other partitions, then ever further back in `tp`. If any
    of these can be read, the failure was not an outage."""
    yield from ((other, at - 1) for other, at in positions if other != tp and at)
    yield from ((tp, at - 2**step) for other, at in positions if other == tp for step in range(16) if at >= 2**step)
