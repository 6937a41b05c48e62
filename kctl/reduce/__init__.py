"""Reducers of the agents' answers to one: one file per command, or `union` (`kctl.master.reduction` is the table)."""

from __future__ import annotations

from kctl.reduce.base import Answer, BrokerSnapshot, Freshness, GroupStats, Reducer
from kctl.reduce.partition_rows import partition_rows
from kctl.rows.partitions import PartitionRow, ResetPolicy

__all__ = [
    "Answer",
    "BrokerSnapshot",
    "Freshness",
    "GroupStats",
    "PartitionRow",
    "Reducer",
    "ResetPolicy",
    "partition_rows",
]
