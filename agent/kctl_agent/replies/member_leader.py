"""`member_leader`: a worker's state in its consumer group, and the leader as it knows it."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.replies.fields import TopicPartition


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
