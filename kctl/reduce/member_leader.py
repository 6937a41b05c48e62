"""`onMemberLeader`: the leader of the consumer group, and its members, as each of them sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.members import GroupMembers, MemberRow

__all__ = ["GroupMembers", "reduce"]


def reduce(answers: Sequence[Answer[MemberRow]], _brokers: BrokerSnapshot) -> GroupMembers:
    """A worker that has not joined yet is listed without ids, and has no part in leader and generation."""
    members = [answer.result for answer in per_sender(answers)]
    generations = {member.generation for member in members if member.generation is not None}
    leaders = {member.leader for member in members if member.leader is not None}
    return GroupMembers(
        leader=next(iter(leaders)) if len(leaders) == 1 else None,
        generation=max(generations, default=None),
        agreed=len(generations) <= 1 and len(leaders) <= 1,
        members=tuple(replace(member, partitions=tuple(sorted(member.partitions))) for member in members),
    )
