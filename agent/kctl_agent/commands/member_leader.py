"""`member_leader`: where this worker stands in its consumer group, and which member it takes for the leader."""

from __future__ import annotations

from kctl_agent.commands.base import Command
from kctl_agent.errors import NotReady
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["MEMBER_LEADER", "answer"]


def answer(snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
    """Member id, generation, leader's member id, and the assigned partitions; null before the worker has joined.

    Raises:
        NotReady: the worker has no consumer yet.
    """
    member = snapshot.member
    if member is None:
        raise NotReady(f"{snapshot.name} has not joined its consumer group yet: ask again")
    knows = member.member_id is not None and member.leader is not None
    return {
        "member_id": member.member_id,
        "worker": snapshot.name,
        "generation": member.generation,
        "leader": member.leader,
        "is_leader": member.member_id == member.leader if knows else None,
        "group": member.group,
        "assignor": member.assignor,
        "partitions": [{"topic": each.topic, "partition": each.partition} for each in snapshot.partitions],
    }


MEMBER_LEADER = Command("member_leader", answer, "member id, generation, leader, assigned partitions")
