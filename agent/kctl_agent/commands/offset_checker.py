"""`offset_checker`: the offsets of each assigned partition, from which the master makes the operator's table."""

from __future__ import annotations

from kctl_agent.commands.base import Command
from kctl_agent.commands.partition_rows import partition_rows
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["OFFSET_CHECKER", "answer"]


def answer(snapshot: Snapshot, _params: JsonObject, now: float) -> JsonObject:
    """The partitions this worker owns, with start, committed, position and end."""
    return {"rows": partition_rows(snapshot, now)}


OFFSET_CHECKER = Command(
    "offset_checker", answer, "start, committed, position and end offset of each assigned partition"
)
