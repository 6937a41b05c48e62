"""What waits in a file storage, by partition, on a connection that is given."""

from __future__ import annotations

import sqlite3

from kctl_agent.storage.claim import PartitionStats

__all__ = ["partitions"]


def partitions(db: sqlite3.Connection, wall: float) -> tuple[PartitionStats, ...]:
    """`wall` is now, in Unix seconds."""
    found: dict[tuple[str, int], PartitionStats] = {}
    for topic, partition, state, messages, size in db.execute(
        "select topic, partition, state, messages, bytes from counters where messages>0 order by topic, partition"
    ):
        tp = (topic, partition)
        found[tp] = found.get(tp, PartitionStats(*tp)).plus(state, messages, size)
    for topic, partition, since in db.execute(
        "select topic, partition,"
        " (select since from queue where topic=c.topic and partition=c.partition order by id limit 1)"
        " from (select distinct topic, partition from counters where messages>0 and state<>'dead') c"
    ):
        tp = (topic, partition)
        if tp in found and since is not None:  # somebody may have settled it between the two
            found[tp] = found[tp].plus("pending", 0, 0, max(wall - since, 0.0))
    return tuple(found.values())
