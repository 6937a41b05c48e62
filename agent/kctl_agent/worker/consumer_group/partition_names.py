"""Partition names for a log line, shortened."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from kafka import TopicPartition

MOST = 20


def partition_names(
    partitions: Collection[TopicPartition], at: Mapping[TopicPartition, int] = MappingProxyType({})
) -> str:
    first = sorted(partitions)[:MOST]
    names = ", ".join(f"{tp.topic}-{tp.partition}" + (f" from {at[tp]}" if tp in at else "") for tp in first)
    return f"{names} and {len(partitions) - MOST} more" if len(partitions) > MOST else names or "none"
