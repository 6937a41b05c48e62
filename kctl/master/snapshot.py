"""The master's immutable snapshot of the whole fleet, from which RPC, HTTP and Prometheus make their answers.

Any thread may read it. None means unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Generic, TypeVar

import numpy as np

from kctl.groups.snapshot import ClusterSnapshot, GroupColumns, GroupSnapshot
from kctl.reduce.base import Freshness, GroupStats
from kctl.reduce.partitions import kafka_lag
from kctl.rows.advice import Advice
from kctl.rows.columns import ABSENT, PartitionColumns, PartitionRows
from kctl.rows.hosts import HostsAnswer
from kctl.rows.partitions import LagTotals
from kctl.rows.verdict import Level, Verdict
from kctl.rows.workers import GroupMembers, Pings, Workers, WorkerStatus
from kctl.rpc.fan_out import Failed
from kctl.status import UNKNOWN, Assessment
from kctl.status.assessments import NOT_ASSESSED, Assessments
from kctl.status.unhandled import UNJUDGED, Unhandled
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.rpc.wire import JsonObject

RPC_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

NO_ADVICE = Advice.unknown("nothing has been collected yet", 0)
_NOT_JUDGED = Verdict(Level.UNKNOWN, "master", "nothing has been collected yet", 0.0)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reduced(Generic[T]):
    result: T
    asked: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()
    """Agents that did not answer; and `brokers` if their offsets are stale or unknown."""
    age_seconds: float | None = None
    """Age of the oldest answer and offsets, at the snapshot; None without answers."""
    stopped: tuple[str, ...] = ()  # agents that were stopped by request: neither asked nor missing
    verdict: Verdict | None = None
    """The verdict on all hosts that were asked; None inside a snapshot, which has its own verdict."""
    judged: Mapping[tuple[str, int], Assessment] = field(default_factory=dict)
    """Other hosts' assessments of the partitions that they read, for `offset_checker`."""

    @property
    def complete(self) -> bool:
        return not self.failed

    def completeness(self) -> JsonObject:
        return {
            "complete": self.complete,
            "asked": list(self.asked),
            "answered": list(self.answered),
            "failed": [failed.to_json() for failed in self.failed],
            "stopped": list(self.stopped),
        }


@dataclass(frozen=True, slots=True)
class RpcStats:
    outcomes: Mapping[str, int]
    """`ok`, `incomplete` (an agent did not answer) and `failed` are all present."""
    buckets: tuple[int, ...]
    """Requests up to each of `RPC_BUCKETS_SECONDS`, not cumulative; the last for longer ones."""
    seconds: float


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """What agents, brokers and the supervisor reported in one collection.

    A field named after a command has that command's result, which is empty if no agent was asked.
    """

    cluster: str
    group: str
    taken_at: float  # monotonic seconds
    collect_seconds: float
    supervised: tuple[WorkerStatus, ...]
    resident_bytes: Mapping[str, int]
    """Memory by worker, including its JVM; absent for a worker without a process."""
    last_success: Mapping[str, float]
    """Part (`agents`, `committed`, `offsets`, `group`) -> Unix seconds; absent before the first success."""
    offset_checker: Reduced[PartitionColumns] = Reduced(PartitionColumns())
    kafka_lag: LagTotals = field(default_factory=LagTotals)
    block_size: Reduced[StorageReply] = Reduced(StorageReply())
    member_leader: Reduced[GroupMembers] = Reduced(GroupMembers())
    kept: Mapping[str, Reduced[Any]] = field(default_factory=dict)
    """Results of the other questions with a `path`, by command."""
    ping: Reduced[Pings] = Reduced(Pings())
    workers: Reduced[Workers] = Reduced(Workers())
    assessments: Assessments = NOT_ASSESSED
    """In the order of `offset_checker`: first those of the group's own partitions."""
    group_assessment: Assessment = UNKNOWN
    unowned: Assessment | None = None
    """With several hosts, the assessment of the partitions that no host reads, which `group_assessment` excludes unless
    there are no others."""
    unhandled: Unhandled = UNJUDGED
    verdict: Verdict = _NOT_JUDGED
    advice: Advice = NO_ADVICE
    since: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Since when an agent is `silent` or waits for something, or the `storage` is `full`: monotonic seconds of the last
    collection without that."""
    attached: tuple[GroupSnapshot, ...] = ()
    brokers: Freshness | None = None
    broker_group: GroupStats | None = None
    """The coordinator's report; None without an answer this time."""
    rpc: Mapping[str, RpcStats] = field(default_factory=dict)
    operations_total: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By operation and outcome (`done`, `failed`, `unknown`, `refused`), since the master started."""
    http_refused_total: Mapping[str, int] = field(default_factory=dict)
    """By error code, since the master started."""
    events_total: Mapping[str, int] = field(default_factory=dict)
    memory_limit_bytes: Mapping[str, int] = field(default_factory=dict)
    sequence: int = 0
    taken_at_unix: float = 0.0
    clusters: tuple[ClusterSnapshot, ...] = ()
    hosts: HostsAnswer | None = None
    has_own_storage: bool = False

    def reduced(self, command: str) -> Reduced[Any]:
        return self.kept.get(command) or getattr(self, command)

    @property
    def partitions(self) -> PartitionRows:
        return self.offset_checker.result.of_group(0)

    @property
    def columns(self) -> GroupColumns:
        return GroupColumns(self.offset_checker.result, self.assessments)

    @property
    def own_assessments(self) -> Assessments:
        return self.assessments[: len(self.partitions)]

    @property
    def stale_after_seconds(self) -> float:
        return inf if self.brokers is None else self.brokers.stale_after_seconds

    @property
    def recent_lag(self) -> LagTotals:
        """The total lag of partitions whose offsets are not stale, for views that show no ages."""
        partitions = self.offset_checker.result
        is_stale, behind = partitions.age_seconds > self.stale_after_seconds, partitions.behind_transaction
        end = np.where(is_stale, ABSENT, partitions.end)
        of_now = None if behind is None else np.where(is_stale, ABSENT, behind)
        return kafka_lag(replace(partitions, end=end, behind_transaction=of_now))

    def lasting(self, name: str, what: str) -> float:
        """Returns for how many seconds the condition (`name`, `what`) of `since` has lasted, or 0."""
        return self.taken_at - self.since.get((name, what), self.taken_at)

    @property
    def groups(self) -> tuple[GroupSnapshot, ...]:
        """The fleet's group first, then attached applications."""
        own = GroupSnapshot(
            self.cluster,
            self.group,
            self.partitions,
            self.own_assessments,
            max(self.group_assessment, self.unowned or self.group_assessment, key=lambda each: each.status.severity),
            self.kafka_lag,
            self.broker_group,
            is_own=True,
            age_seconds=self.offset_checker.result.oldest()[0],
        )
        return own, *self.attached
