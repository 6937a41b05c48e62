"""Replies about Kafka: the offsets of assigned partitions, brokers, topics and group membership."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.replies.fields import TopicPartition, age


@dataclass(frozen=True, slots=True)
class PartitionReply:
    """Offsets of a partition. `start` and `end` are the broker's log start and end."""

    topic: str
    partition: int
    start: int | None = None
    committed: int | None = None
    position: int | None = None
    end: int | None = None
    lag: int | None = None
    last_timestamp: float | None = None
    """Kafka timestamp of the last stored record, in Unix seconds."""
    generation: int | None = None
    age_seconds: float | None = age()
    """Age of the brokers' offsets; None before the first answer."""
    stored_messages: int | None = None
    """Messages of the partition in the storage that are neither handled nor dead letters; None if unknown."""
    stored_seconds: float | None = age()
    """How long the oldest of these messages has been in the storage; None if there are none, or if it is unknown."""


@dataclass(frozen=True, slots=True)
class PartitionsReply:
    """The partitions of one worker, sorted."""

    rows: tuple[PartitionReply, ...] = ()


def lag_of(
    start: int | None, committed: int | None, position: int | None, end: int | None, reset: str = "earliest"
) -> int | None:
    """Returns the lag from the committed offset to the end. Without a committed offset, the lag counts from the log
    start if `reset` is `earliest`, otherwise from the position. Returns None if this offset or `end` is unknown."""
    first = committed
    if first is None:
        first = start if reset == "earliest" else position
    return None if end is None or first is None else max(end - first, 0)


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    node_id: int
    host: str | None = None
    port: int | None = None
    rack: str | None = None
    controller: bool | None = None


@dataclass(frozen=True, slots=True)
class BrokersReply:
    """All brokers that a worker's Kafka client knows."""

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
    """All partitions of the subscribed topics."""

    rows: tuple[PartitionMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberReply:
    """The reply to `member_leader`. Ids are None until the worker has joined."""

    member_id: str | None = None
    worker: str = ""
    generation: int | None = None
    leader: str | None = None
    """The leader's member id."""
    is_leader: bool | None = None
    """None while it does not know both ids."""
    group: str | None = None
    assignor: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
