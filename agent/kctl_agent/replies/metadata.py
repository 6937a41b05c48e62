"""`metadata_brokers`, `metadata_topics`: the brokers, and the leader and replicas of each partition."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    node_id: int
    host: str | None = None
    port: int | None = None
    rack: str | None = None
    controller: bool | None = None


@dataclass(frozen=True, slots=True)
class BrokersReply:
    """The reply to `metadata_brokers`: all brokers that the client knows."""

    rows: tuple[BrokerMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    topic: str
    partition: int
    leader_id: int | None = None
    """None while the partition has no leader."""
    replica_nodes: tuple[int, ...] | None = None
    isr_nodes: tuple[int, ...] | None = None
    offline: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicsReply:
    """The reply to `metadata_topics`: all partitions of the subscribed topics."""

    rows: tuple[PartitionMetadata, ...] = ()
