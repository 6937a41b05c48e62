"""`onMetadataTopics`: leader and replicas of each partition that any worker knows of."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, ClusterFigures, youngest_rows
from kctl_agent.wire import JsonObject

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer], _cluster: ClusterFigures | None) -> JsonObject:
    """`{"rows": [{"topic", "partition", "leader_id", "replica_nodes", "isr_nodes", "offline"}]}`, sorted; the youngest
    answer wins."""
    partitions = youngest_rows(answers, "rows", lambda row: (str(row["topic"]), int(row["partition"])))
    return {"rows": [partitions[key] for key in sorted(partitions)]}
