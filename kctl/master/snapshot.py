"""The master's immutable snapshot of the whole fleet, `FleetSnapshot`; RPC, HTTP and Prometheus encode from it.

Written by the collector, read by anybody on any thread. What is not known is None, and its age is part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Generic, TypeVar

import numpy as np

from kctl.groups.snapshot import ClusterSnapshot, GroupColumns, GroupSnapshot
from kctl.reduce.base import Freshness, GroupStats
from kctl.reduce.partitions import kafka_lag
from kctl.rows.columns import ABSENT, PartitionColumns, PartitionRows
from kctl.rows.hosts import HostsAnswer
from kctl.rows.lag import LagTotals
from kctl.rows.members import GroupMembers
from kctl.rows.verdict import Level, Verdict
from kctl.rows.workers import Pings, Workers, WorkerStatus
from kctl.rpc.fan_out import Failed
from kctl.status import UNKNOWN, Assessment
from kctl.status.assessments import NOT_ASSESSED, Assessments
from kctl.status.unhandled import UNJUDGED, Unhandled
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.rpc.wire import JsonObject

RPC_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the buckets in which durations of requests are counted; the last bucket has none."""

_NOT_JUDGED = Verdict(Level.UNKNOWN, "master", "nothing has been collected yet", 0.0)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reduced(Generic[T]):
    """A command's reduced result and how complete it is."""

    result: T
    asked: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()
    """Agents that did not answer; and `brokers`, where their offsets are stale or unknown."""
    age_seconds: float | None = None
    """Age of the oldest answer and of the oldest offsets in it, as of the snapshot; None when nobody answered."""
    stopped: tuple[str, ...] = ()
    """Processes that were stopped by request: not asked, and not missing."""
    verdict: Verdict | None = None
    """That of all hosts that were asked; None in a snapshot, which has its own."""
    judged: Mapping[tuple[str, int], Assessment] = field(default_factory=dict)
    """Of `offset_checker`, the assessments by other hosts of what they read."""

    @property
    def complete(self) -> bool:
        return not self.failed

    def completeness(self) -> JsonObject:
        """Returns the master's fields of a reply (design, section 5)."""
        return {
            "complete": self.complete,
            "asked": list(self.asked),
            "answered": list(self.answered),
            "failed": [failed.to_json() for failed in self.failed],
            "stopped": list(self.stopped),
        }


@dataclass(frozen=True, slots=True)
class RpcStats:
    """Counts of requests for one command that `master.sock` has answered since the master started."""

    outcomes: Mapping[str, int]
    """Requests by outcome: `ok`, `incomplete` (somebody did not answer), `failed`; every outcome is there."""
    buckets: tuple[int, ...]
    """Requests that took at most each of `RPC_BUCKETS_SECONDS`, not cumulated; one more for those that took longer."""
    seconds: float
    """Seconds of all requests together."""


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """One collection: every command's replies reduced with the brokers' own view, and the supervisor's.

    The fields named like a command hold its result; one that nobody was asked is empty. `reduced` has them by name.
    """

    cluster: str
    group: str
    taken_at: float
    """Monotonic seconds of the collection."""
    collect_seconds: float
    supervised: tuple[WorkerStatus, ...]
    resident_bytes: Mapping[str, int]
    """Memory of all processes of each supervised worker, JVM included; absent while it has none."""
    last_success: Mapping[str, float]
    """Unix seconds of the last success of a part (`agents`, `committed`, `offsets`, `group`); never: absent."""
    offset_checker: Reduced[PartitionColumns] = Reduced(PartitionColumns())
    kafka_lag: LagTotals = field(default_factory=LagTotals)
    """Lag of the partitions of `offset_checker`, and as complete as they are."""
    block_size: Reduced[StorageReply] = Reduced(StorageReply())
    member_leader: Reduced[GroupMembers] = Reduced(GroupMembers())
    kept: Mapping[str, Reduced[Any]] = field(default_factory=dict)
    """Results of the other questions that have a `path`, by command."""
    ping: Reduced[Pings] = Reduced(Pings())
    workers: Reduced[Workers] = Reduced(Workers())
    """The workers, with the supervisor's view in each row."""
    assessments: Assessments = NOT_ASSESSED
    """The assessment of each partition of `offset_checker`, in the same order: first the group's own."""
    group_assessment: Assessment = UNKNOWN
    unowned: Assessment | None = None
    """In a fleet on several hosts, the assessment of the partitions that no host reads; None: there are none. They are
    not in `group_assessment`, unless there are no others."""
    unhandled: Unhandled = UNJUDGED
    """The judgement on the oldest unhandled message."""
    verdict: Verdict = _NOT_JUDGED
    """The verdict on the fleet as a whole (`kctl.master.verdict`)."""
    since: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Since when an agent is `silent` or waits for something, or the `storage` is `full`: the last collection in which
    it was not so, in seconds of the monotonic clock."""
    attached: tuple[GroupSnapshot, ...] = ()
    """The partitions of attached applications beside the group, each application as a group of its own."""
    brokers: Freshness | None = None
    """How fresh the brokers' offsets are."""
    broker_group: GroupStats | None = None
    """The group as its coordinator sees it; None when it did not know this time."""
    rpc: Mapping[str, RpcStats] = field(default_factory=dict)
    """Counts of requests by command."""
    operations_total: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Requests since the master started, by operation and outcome (`done`, `failed`, `refused`)."""
    http_refused_total: Mapping[str, int] = field(default_factory=dict)
    """HTTP requests and connections refused since the master started, by error code."""
    events_total: Mapping[str, int] = field(default_factory=dict)
    """Events since the master started, by kind."""
    memory_limit_bytes: Mapping[str, int] = field(default_factory=dict)
    """Memory at which each supervised worker is restarted; absent where there is no limit."""
    sequence: int = 0
    """The number of this collection in the master's life."""
    taken_at_unix: float = 0.0
    """`taken_at` as Unix seconds."""
    clusters: tuple[ClusterSnapshot, ...] = ()
    """The last collection of all other groups, where `exporter.all_groups` is on."""
    hosts: HostsAnswer | None = None
    """The hosts of the fleet, as this one knows them; None: it runs on one."""
    has_own_storage: bool = False
    """Whether this host of several has a storage of its own."""

    def reduced(self, command: str) -> Reduced[Any]:
        """Returns the result of a command that is collected."""
        found: Reduced[Any] = self.kept.get(command) or getattr(self, command)
        return found

    @property
    def partitions(self) -> PartitionRows:
        """The group's partitions, sorted by topic and number."""
        return self.offset_checker.result.of_group(0)

    @property
    def columns(self) -> GroupColumns:
        """The partitions of all `groups`, one group after the other."""
        return GroupColumns(self.offset_checker.result, self.assessments)

    @property
    def own_assessments(self) -> Assessments:
        """The assessment of each of `partitions`."""
        return self.assessments[: len(self.partitions)]

    @property
    def stale_after_seconds(self) -> float:
        """The age from which on offsets show no lag of now."""
        return inf if self.brokers is None else self.brokers.stale_after_seconds

    @property
    def recent_lag(self) -> LagTotals:
        """The lag of now: that of partitions whose offsets are stale is not known. For views that show no age."""
        partitions = self.offset_checker.result
        is_stale, behind = partitions.age_seconds > self.stale_after_seconds, partitions.behind_transaction
        end = np.where(is_stale, ABSENT, partitions.end)
        of_now = None if behind is None else np.where(is_stale, ABSENT, behind)
        return kafka_lag(replace(partitions, end=end, behind_transaction=of_now))

    def lasting(self, name: str, what: str) -> float:
        """Returns for how many seconds an agent has been `silent`, or has waited for something; 0 when it is not so."""
        return self.taken_at - self.since.get((name, what), self.taken_at)

    @property
    def groups(self) -> tuple[GroupSnapshot, ...]:
        """Returns the fleet's group, as any other group is kept, and attached applications."""
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
