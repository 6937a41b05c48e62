"""How the agents' answers become one: one file per command, named like it; `REDUCERS` is the table."""

from __future__ import annotations

from typing import Any

from kctl.reduce import (
    block_size,
    describe,
    kafka_lag,
    member_leader,
    metadata_brokers,
    metadata_topics,
    offset_checker,
    ping,
    workers,
)
from kctl.reduce.base import Answer, BrokerSnapshot, Freshness, GroupStats, Reducer
from kctl.reduce.encode import encoded
from kctl.reduce.partition_rows import partition_rows
from kctl.rows.partitions import PartitionRow, ResetPolicy

__all__ = [
    "REDUCERS",
    "Answer",
    "BrokerSnapshot",
    "Freshness",
    "GroupStats",
    "PartitionRow",
    "Reducer",
    "ResetPolicy",
    "encoded",
    "partition_rows",
]

REDUCERS: dict[str, Reducer[Any, Any]] = {
    "block_size": block_size.reduce,
    "describe": describe.reduce,
    "kafka_lag": kafka_lag.reduce,
    "member_leader": member_leader.reduce,
    "metadata_brokers": metadata_brokers.reduce,
    "metadata_topics": metadata_topics.reduce,
    "offset_checker": offset_checker.reduce,
    "ping": ping.reduce,
    "workers": workers.reduce,
}
