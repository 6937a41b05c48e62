"""The actions of `Lifecycle`, and the states of a worker and its queries."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kctl_agent.replies.workers import Outside
from kctl_agent.worker.lifecycle.query_groups import Group

NONE: Group = frozenset()


class WorkerState(StrEnum):
    """States that `Lifecycle` decides on; the process adds `starting` and `failed`."""

    JOINING = "joining"
    ASSIGNED = "assigned"
    """The worker has partitions but no query yet."""
    RUNNING = "running"
    THROTTLED = "throttled"
    """The storage has no room: there is no query, or one that is ending."""
    PAUSED = "paused"
    """An operation has paused all its partitions."""
    REBALANCING = "rebalancing"
    STOPPING = "stopping"


class Phase(StrEnum):
    READING = "reading"
    DRAINING = "draining"
    """No further batch begins; one may still run."""
    DRAINED = "drained"
    """No batch runs or will."""


class Action:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LogsObserved:
    answered: Group = NONE
    is_recreated: bool = False
    is_leaderless: bool = False
    """A partition has been without a leader for longer than an election takes."""
    is_hopeless: bool = False
    """The leader is gone for so long that a running batch waits in vain."""


@dataclass(frozen=True, slots=True)
class Enter(Action):
    state: WorkerState


@dataclass(frozen=True, slots=True)
class Commit(Action):
    partitions: Group


@dataclass(frozen=True, slots=True)
class StartQuery(Action):
    """Answered by `query_started`, `start_failed`, `driver_ended` or `lost`."""

    group: Group
    is_careful: bool = False


@dataclass(frozen=True, slots=True)
class Drain(Action):
    """Begins no further batch. Answered by `drained`, now or after a later `Drain`."""

    group: Group


@dataclass(frozen=True, slots=True)
class StopQuery(Action):
    """Ends a query, or (None) all."""

    group: Group | None = None
    is_waited_for: bool = False
    """A running batch has `workers.revoke_timeout_seconds` to end; otherwise it is abandoned."""


@dataclass(frozen=True, slots=True)
class Throttle(Action):
    """Publishes why no batch begins; None: batches begin again."""

    why: str | None


@dataclass(frozen=True, slots=True)
class ReportEvent(Action):
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportRetry(Action):
    why: str
    failures: int
    seconds: float
    outside: Outside | None = None


@dataclass(frozen=True, slots=True)
class ReportQueryFailed(Action):
    why: str
    is_first: bool
