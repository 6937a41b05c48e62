"""`onMetadataBrokers`: the brokers that any worker knows of."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, ClusterFigures, youngest_rows
from kctl_agent.wire import JsonObject

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer], _cluster: ClusterFigures | None) -> JsonObject:
    """`{"rows": [{"node_id", "host", "port", "rack", "controller"}]}` by node id; the youngest answer wins."""
    brokers = youngest_rows(answers, "rows", lambda row: int(row["node_id"]))
    return {"rows": [brokers[node_id] for node_id in sorted(brokers)]}
