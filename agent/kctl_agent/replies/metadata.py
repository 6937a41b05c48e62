"""`metadata_brokers`, `metadata_topics`: the brokers, and the leader and replicas of each partition."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BrokerMetadata", "BrokersReply", "PartitionMetadata", "TopicsReply"]


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    """A broker as a worker's client sees it."""

    node_id: int
    host: str | None = None
    port: int | None = None
    rack: str | None = None
    controller: bool | None = None


@dataclass(frozen=True, slots=True)
class BrokersReply:
    """All that the client knows of."""

    rows: tuple[BrokerMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Leader and replicas of a partition."""

    topic: str
    partition: int
    leader_id: int | None = None
    """None while there is none."""
    replica_nodes: tuple[int, ...] | None = None
    isr_nodes: tuple[int, ...] | None = None
    offline: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicsReply:
    """All partitions of the subscribed topics."""

    rows: tuple[PartitionMetadata, ...] = ()
