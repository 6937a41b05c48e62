"""`metadata_topics`: leader and replicas of each partition as this worker's client sees them."""

from __future__ import annotations

from kctl_agent.commands.base import Command
from kctl_agent.errors import NotReady
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["METADATA_TOPICS", "answer"]


def answer(snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
    """One row per partition of the subscribed topics; `leader_id` is null while there is none.

    Raises:
        NotReady: no metadata has come from a broker yet; an empty list would be a lie.
    """
    if snapshot.topics is None:
        raise NotReady(f"{snapshot.name} has no metadata from a broker yet: ask again")
    return {
        "rows": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "leader_id": each.leader_id,
                "replica_nodes": each.replica_nodes,
                "isr_nodes": each.isr_nodes,
                "offline": each.offline,
            }
            for each in snapshot.topics
        ]
    }


METADATA_TOPICS = Command("metadata_topics", answer, "leader, replicas, in-sync and offline replicas of each partition")
