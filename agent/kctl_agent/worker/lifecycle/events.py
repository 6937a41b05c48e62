"""What happens to a worker, and what it does about it: the events and actions of `Lifecycle`.

Plain values. Partitions are those of Kafka; times are the caller's monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kafka import TopicPartition

from kctl_agent.replies.workers import Outside
from kctl_agent.worker.lifecycle.query_groups import Group

__all__ = [
    "NONE",
    "Action",
    "BatchStored",
    "Commit",
    "Drain",
    "Drained",
    "Draining",
    "DriverEnded",
    "Enter",
    "Event",
    "Fenced",
    "LogsObserved",
    "Lost",
    "Paused",
    "Phase",
    "Polled",
    "QueryFailed",
    "QueryStarted",
    "ReportEvent",
    "ReportQueryFailed",
    "ReportRetry",
    "Revoked",
    "SeekBegun",
    "SeekEnded",
    "SeekRequested",
    "StartDue",
    "StartFailed",
    "StartQuery",
    "StopQuery",
    "StopRequested",
    "StorageCounted",
    "Throttle",
    "Tick",
    "WorkerState",
]

NONE: Group = frozenset()


class WorkerState(StrEnum):
    """As it is published. Before `joining` a worker is `starting`, and where it cannot go on `failed`: those are the
    process's."""

    JOINING = "joining"
    ASSIGNED = "assigned"
    """It has partitions, and no query yet."""
    RUNNING = "running"
    THROTTLED = "throttled"
    """The storage has no room: no query, or one that ends."""
    PAUSED = "paused"
    """All its partitions are, on request."""
    REBALANCING = "rebalancing"
    STOPPING = "stopping"


class Phase(StrEnum):
    """Of a query."""

    READING = "reading"
    DRAINING = "draining"
    """No further batch begins; one may still run."""
    DRAINED = "drained"
    """No batch runs, and none will."""


@dataclass(frozen=True, slots=True)
class Polled:
    """The group was polled: this member may read `assigned` now."""

    assigned: Group
    is_rebalancing: bool = False


@dataclass(frozen=True, slots=True)
class Paused:
    """What is assigned and not to be read, by the operator's word as of now."""

    partitions: Group


@dataclass(frozen=True, slots=True)
class Revoked:
    """These go to another member as soon as the actions are carried out."""

    partitions: Group


@dataclass(frozen=True, slots=True)
class Lost:
    """The group goes on without this member. Nothing may be committed."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another member reads these partitions now, and this one must not join again."""

    why: str


@dataclass(frozen=True, slots=True)
class LogsObserved:
    """What the brokers reported last of the partitions that queries read."""

    answered: Group = NONE
    """Whose leader answers."""
    is_recreated: bool = False
    """A topic that is read has another id."""
    is_leaderless: bool = False
    """A partition that is read has no leader for longer than an election takes."""
    is_hopeless: bool = False
    """For so long that a running batch waits for it in vain."""


@dataclass(frozen=True, slots=True)
class StorageCounted:
    """Why there is no room for another batch, and why there is not enough to go on after there was none."""

    full: str | None = None
    nearly_full: str | None = None


@dataclass(frozen=True, slots=True)
class DriverEnded:
    """The Spark driver is gone, and with it all queries."""

    why: str


@dataclass(frozen=True, slots=True)
class BatchStored:
    """A batch with these partitions has ended well."""

    partitions: Group


@dataclass(frozen=True, slots=True)
class QueryStarted:
    """In answer to `StartQuery`: it reads these. For the others of its group no leader answers, or their offsets are
    refused, and why."""

    partitions: Group
    unanswered: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class StartFailed:
    """In answer to `StartQuery`."""

    group: Group
    why: str
    outside: Outside | None = None


@dataclass(frozen=True, slots=True)
class QueryFailed:
    """A query has ended by itself. An outage is everybody's, whatever they read."""

    group: Group
    why: str
    outside: Outside | None = None


@dataclass(frozen=True, slots=True)
class Draining:
    """These queries begin no further batch, for a reason of their own: the log was truncated, the storage has gone
    back."""

    groups: frozenset[Group]


@dataclass(frozen=True, slots=True)
class Drained:
    """In answer to `Drain`: no batch of this query runs."""

    group: Group


@dataclass(frozen=True, slots=True)
class SeekRequested:
    """An operation has to move a stored offset: all queries drain, and none is started or stopped until it ends."""


@dataclass(frozen=True, slots=True)
class SeekBegun:
    """All queries have drained: the stored offset is moved now."""


@dataclass(frozen=True, slots=True)
class SeekEnded:
    """Well or not."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Everything that is known was reported: end what has to end."""


@dataclass(frozen=True, slots=True)
class StartDue:
    """Start a query, if one is due."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The worker leaves its group next, which revokes what it has."""


Event: TypeAlias = (
    Polled
    | Paused
    | Revoked
    | Lost
    | Fenced
    | LogsObserved
    | StorageCounted
    | BatchStored
    | QueryStarted
    | StartFailed
    | QueryFailed
    | Draining
    | DriverEnded
    | Drained
    | SeekRequested
    | SeekBegun
    | SeekEnded
    | Tick
    | StartDue
    | StopRequested
)


@dataclass(frozen=True, slots=True)
class Enter:
    """Publish this state."""

    state: WorkerState


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit what is stored of these partitions."""

    partitions: Group


@dataclass(frozen=True, slots=True)
class StartQuery:
    """Answered by `QueryStarted`, `StartFailed` or `Lost`."""

    group: Group


@dataclass(frozen=True, slots=True)
class Drain:
    """Let this query begin no further batch. Answered by `Drained`, now or after a later `Drain`."""

    group: Group


@dataclass(frozen=True, slots=True)
class StopQuery:
    """End this query, or (None) all."""

    group: Group | None = None
    is_waited_for: bool = False
    """A running batch has time to end (`workers.revoke_timeout_seconds`); else it is abandoned."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Publish why no new batch is taken; None: it is."""

    why: str | None


@dataclass(frozen=True, slots=True)
class ReportEvent:
    """To the operator."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ReportRetry:
    """`failures` in a row; tried again in `seconds`."""

    why: str
    failures: int
    seconds: float
    outside: Outside | None = None


@dataclass(frozen=True, slots=True)
class ReportQueryFailed:
    """Count it."""

    why: str
    is_first: bool


Action: TypeAlias = (
    Enter | Commit | StartQuery | Drain | StopQuery | Throttle | ReportEvent | ReportRetry | ReportQueryFailed
)
