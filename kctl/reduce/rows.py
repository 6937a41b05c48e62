"""The rows of all kinds by one name, for modules that handle several kinds; `kctl.rows` has them by kind."""

from __future__ import annotations

from kctl.rows.cluster import BrokerRow, TopicRow
from kctl.rows.members import MemberRow
from kctl.rows.methods import MethodRow
from kctl.rows.partitions import PartitionRow, ResetPolicy, TopicPartition
from kctl.rows.storage import StorageRow, StorageStats
from kctl.rows.workers import (
    AgentState,
    EngineStats,
    EventRow,
    PauseRow,
    PingRow,
    SinkerStats,
    UnreadRow,
    WorkerRow,
    WorkerStatus,
)

__all__ = [
    "AgentState",
    "BrokerRow",
    "EngineStats",
    "EventRow",
    "MemberRow",
    "MethodRow",
    "PartitionRow",
    "PauseRow",
    "PingRow",
    "ResetPolicy",
    "SinkerStats",
    "StorageRow",
    "StorageStats",
    "TopicPartition",
    "TopicRow",
    "UnreadRow",
    "WorkerRow",
    "WorkerStatus",
]
