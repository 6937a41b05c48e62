"""Kafka's assignors, extended: they announce the leader to every member and claim what the member owns.

The leader writes its member id and the partition counts into the user data of every assignment; other clients ignore
it. The subscription's user data is not free: sticky uses it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from kafka import TopicPartition
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, ConsumerProtocolAssignment
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

ASSIGNORS: dict[str, type[AbstractPartitionAssignor]] = {
    assignor.name: assignor
    for assignor in (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
}


def leader_announcing(
    name: str,
    own_member_id: Callable[[], str],
    owned: Callable[[], Collection[TopicPartition]],
    on_leader: Callable[[int, str | None, dict[str, int]], None],
) -> type[AbstractPartitionAssignor]:
    """Returns assignor `name` as a class that also announces the leader.

    `own_member_id` is called in `assign`, `owned` at each join, `on_leader(generation, leader, partitions)` on
    kafka-python's I/O thread at every assignment: `leader` is None if the leader is a client that writes no note;
    `partitions` counts those of each topic.
    """

    stock: Any = ASSIGNORS[name]

    class LeaderAnnouncing(stock):  # type: ignore[misc]
        def assign(self, cluster: Any, members: Any) -> Any:
            topics = sorted({topic for member in members for topic in member.metadata.topics})
            partitions = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
            note = json.dumps({"leader": own_member_id(), "partitions": partitions}).encode()
            shares = super().assign(cluster, members)
            return {
                member: ConsumerProtocolAssignment(share.version, share.assigned_partitions, note)
                for member, share in shares.items()
            }

        def metadata(self, topics: Any) -> Any:
            if name == CooperativeStickyAssignor.name:
                # kafka-python 3.0.12 claims its last assignment even after losing it. The leader would keep these
                # partitions for this member, which never gives them up.
                self.member_assignment = sorted(owned())
            return super().metadata(topics)

        def on_assignment(self, assignment: Any, generation: int) -> None:
            on_leader(generation, *_leader(bytes(assignment.user_data or b"")))
            super().on_assignment(assignment, generation)

    LeaderAnnouncing.name = name
    return LeaderAnnouncing


def _leader(note: bytes) -> tuple[str | None, dict[str, int]]:
    try:
        given = json.loads(note)
        return str(given["leader"]), {str(topic): int(count) for topic, count in given.get("partitions", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, {}
