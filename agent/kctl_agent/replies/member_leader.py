"""`member_leader`: where a worker stands in its consumer group, and which member it takes for the leader."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.replies.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class MemberReply:
    """The reply to `member_leader`. Ids are None before it has joined."""

    member_id: str | None = None
    worker: str = ""
    generation: int | None = None
    leader: str | None = None
    """The leader's member id."""
    is_leader: bool | None = None
    """Whether this member leads; None while it does not know both ids."""
    group: str | None = None
    assignor: str | None = None
    partitions: tuple[TopicPartition, ...] = ()
