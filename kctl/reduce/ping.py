"""`onPing`: who is there."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, ClusterFigures, per_sender
from kctl_agent.wire import JsonObject

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer], _cluster: ClusterFigures | None) -> JsonObject:
    """`{"rows": [{"name", "pid", "version"}]}`, sorted by name."""
    return {"rows": [answer.result for answer in per_sender(answers)]}
