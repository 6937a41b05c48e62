"""`onDescribe`: every method that some agent serves."""

from __future__ import annotations

from collections.abc import Sequence

from kctl.reduce.base import Answer, ClusterFigures, youngest_rows
from kctl_agent.wire import JsonObject

__all__ = ["reduce"]


def reduce(answers: Sequence[Answer], _cluster: ClusterFigures | None) -> JsonObject:
    """`{"methods": [{"method", "rpc", "summary", "params", "deadline_ms", "changes"}]}`, a union by method."""
    methods = youngest_rows(answers, "methods", lambda row: str(row["method"]))
    return {"methods": [methods[name] for name in sorted(methods)]}
