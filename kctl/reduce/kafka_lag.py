"""`onKafkaLag`: how many messages wait in Kafka, in all and per topic, and the partitions of which it is not known."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce import offset_checker
from kctl.reduce.base import Answer, BrokerSnapshot
from kctl.reduce.offset_checker import Partitions
from kctl.rows.lag import LagTotals
from kctl.rows.partitions import PartitionRow
from kctl_agent.replies.topic_partition import TopicPartition


def reduce(answers: Sequence[Answer[tuple[PartitionRow, ...]]], brokers: BrokerSnapshot) -> LagTotals:
    return totals(offset_checker.reduce(answers, brokers))


def totals(partitions: Partitions) -> LagTotals:
    """Sums partitions that are reduced already; what waits for attached applications too."""
    topics: dict[str, int | None] = {}
    unknown: list[TopicPartition] = []
    for row in partitions.every:
        topics.setdefault(row.topic, None)
        lag = row.lag
        if lag is None:
            unknown.append(TopicPartition(row.topic, row.partition))
        else:
            topics[row.topic] = (topics[row.topic] or 0) + lag
    known = [lag for lag in topics.values() if lag is not None]
    return LagTotals(sum(known) if known else None, tuple(unknown), topics)
