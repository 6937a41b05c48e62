"""`FleetSnapshot`: the master's immutable picture of the whole fleet; RPC, HTTP and Prometheus tell figures from it.

Written by the collector, read by anybody on any thread. A figure that is not known is None, and its age is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kctl.reduce import PartitionRow
from kctl.rpc.fan_out import Failed
from kctl_agent.wire import JsonObject

__all__ = ["FleetSnapshot", "Reduced", "WorkerStatus"]


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker as its supervisor sees it."""

    name: str
    kind: str
    desired: str
    state: str
    pid: int | None
    since_seconds: float
    """How long it has been in `state`."""
    restarts: Mapping[str, int]
    """Reason to count; every reason is there."""
    next_try_seconds: float | None
    last_error: str | None
    log: str

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "kind": self.kind,
            "desired": self.desired,
            "state": self.state,
            "pid": self.pid,
            "since_seconds": self.since_seconds,
            "restarts": sum(self.restarts.values()),
            "next_try_seconds": self.next_try_seconds,
            "last_error": self.last_error,
            "log": self.log,
        }


@dataclass(frozen=True, slots=True)
class Reduced:
    """A command's reduced result and how complete it is."""

    result: JsonObject
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    failed: tuple[Failed, ...]
    age_seconds: float | None
    """Of the oldest answer, when the snapshot was taken; None when nobody answered."""

    @property
    def complete(self) -> bool:
        return not self.failed

    def completeness(self) -> JsonObject:
        """The master's fields of a reply (design, section 5)."""
        return {
            "complete": self.complete,
            "asked": list(self.asked),
            "answered": list(self.answered),
            "failed": [failed.to_json() for failed in self.failed],
        }


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """One collection: every command's answers reduced with the brokers' own figures, and the supervisor's view."""

    cluster: str
    group: str
    taken_at: float
    """Seconds of the master's monotonic clock."""
    collect_seconds: float
    commands: Mapping[str, Reduced]
    partitions: tuple[PartitionRow, ...]
    workers: tuple[WorkerStatus, ...]
    resident_bytes: Mapping[str, int]
    """Supervised worker to the memory of all its processes, JVM included; absent while it has none."""
    last_success: Mapping[str, float]
    """Part (`agents`, `committed`, `offsets`) to the Unix seconds when it last succeeded; never: absent."""
