"""Types for workers, sinkers and attached applications: their own reports, and their supervisor's view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from msgspec import Struct

from kctl.rows.partitions import LagGlance
from kctl.rows.verdict import Verdict
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.encode import fields_of
from kctl_agent.replies.fields import TopicPartition
from kctl_agent.replies.workers import PingReply, Scope, WorkerReply
from kctl_agent.rpc.wire import JsonObject

NOT_GROUP_MEMBERS = frozenset({"sinker", "engine"})  # kinds of processes that own no partition


class AgentState(StrEnum):
    """The activities that workers, sinkers and attached applications report. Other releases may add activities."""

    STARTING = "starting"
    JOINING = "joining"
    ASSIGNED = "assigned"
    RUNNING = "running"
    REBALANCING = "rebalancing"
    PAUSED = "paused"
    THROTTLED = "throttled"
    IDLE = "idle"
    FAILED = "failed"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A process as its supervisor sees it."""

    name: str
    kind: str
    desired: str
    state: str
    pid: int | None
    since_seconds: float
    """How long the process has been in `state`."""
    restarts_by_cause: Mapping[str, int]
    """Number of restarts by cause; JSON omits causes that never occurred."""
    next_try_seconds: float | None
    last_error: str | None
    log: str
    resident_bytes: int | None = None
    """Resident memory of the process and its children, including its JVM; None before the first measurement."""
    warning: str | None = None
    """A warning of the supervisor, such as a memory limit that is not applied."""
    paused: tuple[Scope, ...] = ()
    """Partitions and topics that the process must not read."""
    is_requested: bool = False
    """Whether the last start or restart was requested, and the process has not failed since."""

    @property
    def state_words(self) -> str:
        """The state in words that can follow `is`, such as `running` or `in backoff`."""
        return f"in {self.state}" if self.state == "backoff" else self.state

    @property
    def restarts(self) -> int:
        return sum(self.restarts_by_cause.values())

    def to_json(self) -> JsonObject:
        causes = {cause: count for cause, count in self.restarts_by_cause.items() if count}
        return {**fields_of(self), "restarts": self.restarts, "restarts_by_cause": causes}


@dataclass(frozen=True, slots=True)
class WorkerRow(WorkerReply):
    """A process's report on itself, with its supervisor's view."""

    age_seconds: float | None = None
    """Age of the reply; None for a supervised process whose agent did not reply."""
    supervisor: WorkerStatus | None = None
    """The supervisor's view; None for an attached application."""


class Workers(Struct, frozen=True):
    """All processes of a fleet."""

    rows: tuple[WorkerRow, ...] = ()
    """The processes, sorted by name."""


class Pings(Struct, frozen=True):
    rows: tuple[PingReply, ...] = ()
    """The pings, sorted by name."""


class Statuses(Struct, frozen=True):
    """The processes of a fleet as their supervisor sees them."""

    rows: tuple[WorkerStatus, ...]


class StatusAnswer(Statuses, frozen=True):
    """The master's answer to `status`."""

    verdict: Verdict
    workers: tuple[WorkerRow, ...] = ()
    """Reports of processes on themselves; none before the first collection."""
    lag: LagGlance | None = None
    """The lag at a glance; None before the first collection."""
    storage: StorageReply | None = None
    """Pending messages and dead letters; None before the first collection, and if each host has its own storage."""


def with_statuses(rows: Iterable[WorkerRow], statuses: Iterable[WorkerStatus]) -> list[WorkerRow]:
    """Adds the supervisor's view to reports. Attached applications come last, others in the supervisor's order."""
    own = {row.name: row for row in rows}
    supervised = [
        replace(own.pop(status.name, WorkerRow(status.name, status.kind, pid=status.pid)), supervisor=status)
        for status in statuses
    ]
    return [*supervised, *own.values()]


class MemberRow(Struct, frozen=True):
    """A worker's membership in its consumer group. `member_id` and `generation` are None until the worker joins."""

    member_id: str | None
    worker: str
    is_leader: bool | None
    generation: int | None
    partitions: tuple[TopicPartition, ...] = ()


class GroupMembers(Struct, frozen=True):
    """A group's members. `agreed` is false while they report different generations or leaders, such as in a rebalance.
    `generation` is the highest that a member reports. `leader` is None unless all members report the same leader."""

    leader: str | None = None
    """Member id of the leader."""
    generation: int | None = None
    agreed: bool = True
    members: tuple[MemberRow, ...] = ()
    """The members, sorted by worker."""
