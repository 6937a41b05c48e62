"""The members of the consumer group, each as it sees itself, and their leader."""

from __future__ import annotations

from msgspec import Struct

from kctl_agent.replies.topic_partition import TopicPartition


class MemberRow(Struct, frozen=True):
    """Where a worker stands in its consumer group; ids are None before it has joined."""

    member_id: str | None
    worker: str
    is_leader: bool | None
    generation: int | None
    partitions: tuple[TopicPartition, ...] = ()


class GroupMembers(Struct, frozen=True):
    """The group's members. `agreed` is false while members have different generations or leaders, as during a
    rebalance; `generation` is then the highest, and `leader` None unless all name the same one."""

    leader: str | None = None
    """Member id of the leader."""
    generation: int | None = None
    agreed: bool = True
    members: tuple[MemberRow, ...] = ()
    """The members, sorted by worker."""
