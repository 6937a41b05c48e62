"""`onMetadataTopics`: leader and replicas of each partition that any worker knows of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kctl.reduce.base import Answer, BrokerSnapshot, newest_rows
from kctl.rows.cluster import TopicRow

__all__ = ["TopicRows", "reduce"]


@dataclass(frozen=True, slots=True)
class TopicRows:
    rows: tuple[TopicRow, ...] = ()
    """Sorted by topic and partition."""


def reduce(answers: Sequence[Answer[tuple[TopicRow, ...]]], _brokers: BrokerSnapshot) -> TopicRows:
    """A union by topic and partition; the newest answer wins."""
    partitions = newest_rows(answers, lambda row: row[:2])
    return TopicRows(tuple(partitions[key] for key in sorted(partitions)))
