"""`onMemberLeader`: who leads the consumer group, and its members, as each of them sees it."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, ClusterFigures, per_sender
from kctl_agent.wire import JsonObject

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer], _cluster: ClusterFigures | None) -> JsonObject:
    """`{"leader", "generation", "agreed", "members"}`; a member is
    `{"member_id", "worker", "is_leader", "generation", "partitions": [{"topic", "partition"}]}`.

    `agreed` is false while members are in different generations or name different leaders, as in the middle of a
    rebalance; `generation` is then the highest, and `leader` null unless all name the same. A worker that has not
    joined yet is listed with nulls and has no say.
    """
    results = [(answer.sender, answer.result) for answer in per_sender(answers)]
    generations = {result["generation"] for _, result in results if result.get("generation") is not None}
    leaders = {result["leader"] for _, result in results if result.get("leader") is not None}
    return {
        "leader": next(iter(leaders)) if len(leaders) == 1 else None,
        "generation": max(generations, default=None),
        "agreed": len(generations) <= 1 and len(leaders) <= 1,
        "members": [_member(sender, result) for sender, result in results],
    }


def _member(sender: str, result: JsonObject) -> JsonObject:
    partitions = result.get("partitions") or ()
    return {
        "member_id": result.get("member_id"),
        "worker": sender,
        "is_leader": result.get("is_leader"),
        "generation": result.get("generation"),
        "partitions": sorted(partitions, key=lambda each: (each["topic"], each["partition"])),
    }
