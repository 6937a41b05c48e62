"""The members of the consumer group, each as it sees itself, and their leader."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.rows import fields
from kctl.rows.partitions import TopicPartition, topic_partitions
from kctl_agent.wire import JsonObject

__all__ = ["GroupMembers", "MemberRow", "group_members", "member_row"]


@dataclass(frozen=True, slots=True)
class MemberRow:
    """Where a worker stands in its consumer group; ids are None before it has joined."""

    member_id: str | None
    worker: str
    is_leader: bool | None
    generation: int | None
    leader: str | None
    """The member id of the leader, as this member knows it; the JSON has one for the whole group."""
    partitions: tuple[TopicPartition, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            "member_id": self.member_id,
            "worker": self.worker,
            "is_leader": self.is_leader,
            "generation": self.generation,
            "partitions": self.partitions,
        }


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """`agreed` is false while members are in different generations or name different leaders, as in the middle of a
    rebalance; `generation` is then the highest, and `leader` None unless all name the same."""

    leader: str | None = None
    generation: int | None = None
    agreed: bool = True
    members: tuple[MemberRow, ...] = ()
    """Sorted by worker."""


def member_row(worker: str, result: JsonObject) -> MemberRow:
    return MemberRow(
        member_id=fields.text(result, "member_id"),
        worker=worker,
        is_leader=fields.flag(result, "is_leader"),
        generation=fields.whole(result, "generation"),
        leader=fields.text(result, "leader"),
        partitions=topic_partitions(result, "partitions"),
    )


def group_members(result: JsonObject) -> GroupMembers:
    """The leader of all stands beside the members, not in each of them."""
    return GroupMembers(
        leader=fields.text(result, "leader"),
        generation=fields.whole(result, "generation"),
        agreed=fields.flag(result, "agreed") is not False,
        members=tuple(
            member_row(fields.required(fields.text(row, "worker"), "worker"), row)
            for row in fields.objects(result, "members") or ()
        ),
    )
