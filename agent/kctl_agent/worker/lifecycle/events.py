"""The events and actions of `Lifecycle`: what happens to a worker, and what it does about it.

Plain values. Partitions are those of Kafka; times are the caller's monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka import TopicPartition

from kctl_agent.replies.workers import Outside
from kctl_agent.worker.lifecycle.query_groups import Group

NONE: Group = frozenset()


class WorkerState(StrEnum):
    """States of a worker that `Lifecycle` decides on; `starting` before, and `failed`, are the process's."""

    JOINING = "joining"
    ASSIGNED = "assigned"
    """The worker has partitions, and no query yet."""
    RUNNING = "running"
    THROTTLED = "throttled"
    """The storage has no room: no query, or one that ends."""
    PAUSED = "paused"
    """All its partitions are paused by an operation."""
    REBALANCING = "rebalancing"
    STOPPING = "stopping"


class Phase(StrEnum):
    """Phases of a query."""

    READING = "reading"
    DRAINING = "draining"
    """No further batch begins; one may still run."""
    DRAINED = "drained"
    """No batch runs, and none will."""


class LifecycleEvent:
    """What has happened to a worker."""

    __slots__ = ()


class Action:
    """What is to be done about it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Polled(LifecycleEvent):
    """The group was polled: this member may read `assigned` now."""

    assigned: Group
    is_rebalancing: bool = False


@dataclass(frozen=True, slots=True)
class Paused(LifecycleEvent):
    """The operator has paused these of the assigned partitions, and no others."""

    partitions: Group


@dataclass(frozen=True, slots=True)
class Revoked(LifecycleEvent):
    """These partitions go to another member as soon as the actions are carried out."""

    partitions: Group


@dataclass(frozen=True, slots=True)
class Lost(LifecycleEvent):
    """The session expired, and the group goes on without this member. Nothing may be committed."""


@dataclass(frozen=True, slots=True)
class Fenced(LifecycleEvent):
    """Another member reads these partitions now, and this one must not join again."""

    why: str


@dataclass(frozen=True, slots=True)
class LogsObserved(LifecycleEvent):
    """The brokers' last report of the partitions that queries read."""

    answered: Group = NONE
    """Partitions whose leader answers."""
    is_recreated: bool = False
    """Whether a topic that is read has another id."""
    is_leaderless: bool = False
    """Whether a partition that is read has had no leader for longer than an election takes."""
    is_hopeless: bool = False
    """Whether the leader is gone for so long that a running batch waits for it in vain."""


@dataclass(frozen=True, slots=True)
class StorageCounted(LifecycleEvent):
    """The storage was counted: why it has no room for another batch, and why too little to go on after it had none."""

    full: str | None = None
    nearly_full: str | None = None


@dataclass(frozen=True, slots=True)
class DriverEnded(LifecycleEvent):
    """The Spark driver is gone, and with it all queries."""

    why: str


@dataclass(frozen=True, slots=True)
class BatchStored(LifecycleEvent):
    """A batch with these partitions is stored."""

    partitions: Group


@dataclass(frozen=True, slots=True)
class QueryStarted(LifecycleEvent):
    """The answer to `StartQuery`: the query reads these partitions. The others of its group are not read, and why."""

    partitions: Group
    unanswered: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class StartFailed(LifecycleEvent):
    """The answer to `StartQuery` where the query could not be started."""

    group: Group
    why: str
    outside: Outside | None = None


@dataclass(frozen=True, slots=True)
class QueryFailed(LifecycleEvent):
    """A query has ended by itself. An outage is everybody's, whatever they read."""

    group: Group
    why: str
    outside: Outside | None = None


@dataclass(frozen=True, slots=True)
class Draining(LifecycleEvent):
    """These queries begin no further batch: the log was truncated, or the storage has gone back."""

    groups: frozenset[Group]


@dataclass(frozen=True, slots=True)
class Drained(LifecycleEvent):
    """The answer to `Drain`: no batch of this query runs."""

    group: Group


@dataclass(frozen=True, slots=True)
class SeekRequested(LifecycleEvent):
    """An operation has to move a stored offset: all queries drain, and none is started or stopped until it ends."""


@dataclass(frozen=True, slots=True)
class SeekBegun(LifecycleEvent):
    """All queries have drained for a seek: the stored offset is moved now."""


@dataclass(frozen=True, slots=True)
class SeekEnded(LifecycleEvent):
    """The seek has ended, well or not."""


@dataclass(frozen=True, slots=True)
class Tick(LifecycleEvent):
    """The end of a turn: all that is known was reported, and what has to end is ended."""


@dataclass(frozen=True, slots=True)
class StartDue(LifecycleEvent):
    """The time at which a query is started, if one is due."""


@dataclass(frozen=True, slots=True)
class StopRequested(LifecycleEvent):
    """The worker was asked to stop: it leaves its group next, which revokes its partitions."""


@dataclass(frozen=True, slots=True)
class Enter(Action):
    """Publish this state."""

    state: WorkerState


@dataclass(frozen=True, slots=True)
class Commit(Action):
    """Commit the stored offsets of these partitions."""

    partitions: Group


@dataclass(frozen=True, slots=True)
class StartQuery(Action):
    """Start a query for these partitions. Answered by `QueryStarted`, `StartFailed` or `Lost`."""

    group: Group


@dataclass(frozen=True, slots=True)
class Drain(Action):
    """Let this query begin no further batch. Answered by `Drained`, now or after a later `Drain`."""

    group: Group


@dataclass(frozen=True, slots=True)
class StopQuery(Action):
    """End this query, or (None) all."""

    group: Group | None = None
    is_waited_for: bool = False
    """Whether a running batch has time to end (`workers.revoke_timeout_seconds`); else it is abandoned."""


@dataclass(frozen=True, slots=True)
class Throttle(Action):
    """Publish why no new batch is begun; None: batches are begun again."""

    why: str | None


@dataclass(frozen=True, slots=True)
class ReportEvent(Action):
    """Report an event to the operator."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportRetry(Action):
    """Report `failures` of a query in a row, and that it is started again in `seconds`."""

    why: str
    failures: int
    seconds: float
    outside: Outside | None = None


@dataclass(frozen=True, slots=True)
class ReportQueryFailed(Action):
    """Count a query that has failed."""

    why: str
    is_first: bool
