"""`FleetSnapshot`: the master's immutable picture of the whole fleet; RPC, HTTP and Prometheus tell figures from it.

Written by the collector, read by anybody on any thread. A figure that is not known is None, and its age is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.reduce import Freshness, GroupFigures, PartitionRow
from kctl.rpc.fan_out import Failed
from kctl.status import UNKNOWN, Assessment
from kctl_agent.wire import JsonObject

__all__ = ["RPC_BUCKETS_SECONDS", "FleetSnapshot", "Reduced", "RpcFigures", "WorkerStatus"]

RPC_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets in which durations of requests are counted; the last bucket has none."""


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
    resident_bytes: int | None = None
    """Of all its processes, its JVM included; None before the first measurement."""
    warning: str | None = None
    """What its supervisor has to say that is no error of the worker: a memory limit that is not applied."""
    paused: tuple[JsonObject, ...] = ()
    """What it is told not to read: `topic`, `partition` (null: all), `by`, `since` (Unix seconds)."""

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "kind": self.kind,
            "desired": self.desired,
            "state": self.state,
            "pid": self.pid,
            "since_seconds": self.since_seconds,
            "restarts": sum(self.restarts.values()),
            "restarts_by_cause": {cause: count for cause, count in self.restarts.items() if count},
            "next_try_seconds": self.next_try_seconds,
            "last_error": self.last_error,
            "log": self.log,
            "resident_bytes": self.resident_bytes,
            "warning": self.warning,
            "paused": list(self.paused),
        }


@dataclass(frozen=True, slots=True)
class Reduced:
    """A command's reduced result and how complete it is."""

    result: JsonObject
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    failed: tuple[Failed, ...]
    """Agents that did not answer; and `brokers`, where their figures are stale or unknown."""
    age_seconds: float | None
    """Of the oldest answer and of the oldest figures in it, when the snapshot was taken; None when nobody answered."""
    stopped: tuple[str, ...] = ()
    """Who was stopped by request: not asked for, and not missing."""

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
            "stopped": list(self.stopped),
        }


@dataclass(frozen=True, slots=True)
class RpcFigures:
    """Requests for one command that `master.sock` has answered since the master started."""

    outcomes: Mapping[str, int]
    """`ok`, `incomplete` (somebody did not answer), `failed`; every outcome is there."""
    buckets: tuple[int, ...]
    """How many took at most each of `RPC_BUCKETS_SECONDS`, not cumulated; one more for those that took longer."""
    seconds: float
    """All of them together."""


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
    """Part (`agents`, `committed`, `offsets`, `group`) to the Unix seconds when it last succeeded; never: absent."""
    assessments: tuple[Assessment, ...] = ()
    """One for each of `partitions`, in the same order."""
    group_assessment: Assessment = UNKNOWN
    brokers: Freshness | None = None
    """How fresh the brokers' figures are."""
    broker_group: GroupFigures | None = None
    """The group as its coordinator sees it; None when it could not tell this time."""
    rpc: Mapping[str, RpcFigures] = field(default_factory=dict)
    """By command."""
    orders_total: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Verb and outcome (`done`, `failed`, `refused`) to how many orders there were since the master started."""
    http_refused_total: Mapping[str, int] = field(default_factory=dict)
    """Error code to how many HTTP requests and connections were refused with it since the master started."""
    events_total: Mapping[str, int] = field(default_factory=dict)
    """Kind of event to how many there were since the master started."""
    memory_limit_bytes: Mapping[str, int] = field(default_factory=dict)
    """Supervised worker to the memory at which it is restarted; absent where there is no limit."""
    sequence: int = 0
    """Counts the collections of one master."""
    taken_at_unix: float = 0.0
    """`taken_at` as Unix seconds."""
