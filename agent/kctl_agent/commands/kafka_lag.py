"""`kafka_lag`: how far each assigned partition is behind its end."""

from __future__ import annotations

from kctl_agent.commands.base import Command
from kctl_agent.commands.partition_rows import partition_rows
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["KAFKA_LAG", "answer"]


def answer(snapshot: Snapshot, _params: JsonObject, now: float) -> JsonObject:
    """The partitions this worker owns; the master sums them."""
    return {"rows": partition_rows(snapshot, now)}


KAFKA_LAG = Command("kafka_lag", answer, "lag of each assigned partition, and the offsets it is counted from")
