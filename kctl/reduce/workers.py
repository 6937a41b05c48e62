"""`onWorkers`: what each worker says of itself."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, ClusterFigures, per_sender
from kctl_agent.wire import JsonObject

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer], _cluster: ClusterFigures | None) -> JsonObject:
    """`{"rows": [the worker's own answer and its "age_seconds"]}`, sorted by name."""
    return {"rows": [{**answer.result, "age_seconds": answer.age_seconds} for answer in per_sender(answers)]}
