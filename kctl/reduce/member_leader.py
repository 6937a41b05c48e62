"""`onMemberLeader`: the leader of the consumer group, and its members, as each of them sees it."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.rows.members import GroupMembers, MemberRow
from kctl_agent.replies.member_leader import MemberReply


def reduce(answers: Sequence[Answer[MemberReply]], _brokers: BrokerSnapshot) -> GroupMembers:
    """Lists members. A worker that has not joined yet is without ids, and has no part in leader and generation."""
    newest = per_sender(answers)
    generations = {each.result.generation for each in newest if each.result.generation is not None}
    leaders = {each.result.leader for each in newest if each.result.leader is not None}
    own = [each.result.member_id for each in newest if each.result.is_leader]  # a static one may have another id now
    return GroupMembers(
        leader=next(iter(own or leaders)) if len(leaders) == 1 else None,
        generation=max(generations, default=None),
        agreed=len(generations) <= 1 and len(leaders) <= 1,
        members=tuple(_member(each.sender, each.result) for each in newest),
    )


def _member(worker: str, reply: MemberReply) -> MemberRow:
    partitions = tuple(sorted(reply.partitions, key=attrgetter("topic", "partition")))
    return MemberRow(reply.member_id, worker, reply.is_leader, reply.generation, partitions)
