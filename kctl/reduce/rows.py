"""What an agent's reply to each command holds, typed: `kctl.rpc.results` makes these, and nobody checks them again.

None is unknown. The names of the fields are those of the JSON (`kctl.reduce.encode`), but for `PartitionRow`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from kctl_agent.wire import JsonObject

__all__ = [
    "AgentState",
    "BrokerRow",
    "EventRow",
    "MemberRow",
    "MethodRow",
    "PartitionRow",
    "PauseRow",
    "PingRow",
    "ResetPolicy",
    "SinkerStats",
    "StorageRow",
    "StorageStats",
    "TopicPartition",
    "TopicRow",
    "UnreadRow",
    "WorkerRow",
    "WorkerStatus",
]


class AgentState(StrEnum):
    """What a worker, a sinker or an attached application reports that it is doing."""

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


class ResetPolicy(StrEnum):
    """Where a group begins that has committed nothing: Kafka's `auto.offset.reset`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class PartitionRow(NamedTuple):
    """What is known of a partition; `age_seconds` is that of `committed` and `end`. A tuple, because there may be a
    hundred thousand."""

    topic: str
    partition: int
    start: int | None
    committed: int | None
    position: int | None
    end: int | None
    last_timestamp: float | None
    """Unix seconds: Kafka's timestamp of the last record that was stored."""
    worker: str | None
    generation: int | None
    age_seconds: float
    """Infinite in the reply of an agent that has asked no broker yet."""
    reset: ResetPolicy = ResetPolicy.EARLIEST

    @property
    def lag_from(self) -> int | None:
        """The offset from which lag is counted. Where nothing was ever committed, the reset policy decides:
        `earliest` the log start, `latest` the position, as soon as there is one."""
        if self.committed is not None:
            return self.committed
        if self.reset == "earliest":
            return self.start
        return self.position if self.reset == "latest" else None

    @property
    def lag(self) -> int | None:
        """From `lag_from` to the end offset, never negative."""
        first = self.committed
        if first is None:
            first = self.lag_from
        if self.end is None or first is None:
            return None
        lag = self.end - first
        return lag if lag > 0 else 0

    def to_json(self) -> JsonObject:
        """The columns of `offset_checker`."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "current_offset": self.committed,
            "kafka_max_offset": self.end,
            "remaining_count": self.lag,
            "worker": self.worker,
            "age_seconds": self.age_seconds,
        }


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def to_json(self) -> JsonObject:
        return {"topic": self.topic, "partition": self.partition}


@dataclass(frozen=True, slots=True)
class PauseRow:
    """What is not to be read: a topic, one partition of it, or (topic None) everything."""

    topic: str | None
    partition: int | None
    by: str | None
    since: float | None
    """Unix seconds."""

    def covers(self, topic: str, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)


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
    """What its supervisor reports that is no error of the worker: a memory limit that is not applied."""
    paused: tuple[PauseRow, ...] = ()
    """What it is not to read."""

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
            "paused": self.paused,
        }


@dataclass(frozen=True, slots=True)
class UnreadRow:
    """A partition that is assigned and not read, or only by a query of its own, with the reason."""

    topic: str
    partition: int
    why: str | None


@dataclass(frozen=True, slots=True)
class EventRow:
    """What an agent reports to have happened; `at` is Unix seconds."""

    at: float
    kind: str
    text: str
    topic: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None

    def to_json(self) -> JsonObject:
        return {
            "at": self.at,
            "kind": self.kind,
            "topic": self.topic,
            "partition": self.partition,
            "from": self.from_offset,
            "to": self.to_offset,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True)
class SinkerStats:
    """Messages by outcome since the sinker started, and how long its handler takes."""

    handled: int | None = None
    retried: int | None = None
    dead: int | None = None
    lost: int | None = None
    in_flight: int | None = None
    handler_errors: int | None = None
    handler_p50_seconds: float | None = None
    handler_p99_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """What a worker, a sinker or an attached application is doing. Of a sinker a batch is a call of its handler."""

    name: str
    kind: str | None = None
    state: AgentState | None = None
    """None too for a state that this release does not know."""
    state_seconds: float | None = None
    pid: int | None = None
    uptime_seconds: float | None = None
    rss_bytes: int | None = None
    query_id: str | None = None
    batch_id: int | None = None
    last_batch_seconds: float | None = None
    last_batch_rows: int | None = None
    rows_per_second: float | None = None
    batch_running_seconds: float | None = None
    rows_total: int | None = None
    batches_total: int | None = None
    queries_failed: int | None = None
    last_error: str | None = None
    left_out: tuple[UnreadRow, ...] | None = None
    isolated: tuple[UnreadRow, ...] | None = None
    paused: tuple[PauseRow, ...] | None = None
    events: tuple[EventRow, ...] = ()
    sinker: SinkerStats | None = field(default=None, metadata={"is_left_out": True})
    """Of a sinker only; the JSON of others has no such field."""
    age_seconds: float | None = None
    """Of the reply; None of a supervised one whose agent did not reply."""
    supervisor: WorkerStatus | None = None
    """None of one that is only attached."""


@dataclass(frozen=True, slots=True)
class StorageStats:
    """What waits in a storage, or in several: then sums, None where one of them does not know."""

    pending: int | None = None
    delayed: int | None = None
    processing: int | None = None
    dead: int | None = None
    bytes: int | None = None
    limit: int | None = None
    limit_bytes: int | None = None
    dead_limit: int | None = None
    free_bytes: int | None = None
    """Of several storages that of the one with least."""
    full: str | None = None
    """Why workers take no new batch; None while there is room."""


@dataclass(frozen=True, slots=True)
class StorageRow(StorageStats):
    """The storage of one worker."""

    storage: str | None = None
    """Equal for workers that share one. None: the worker has not opened its storage yet."""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """Where a worker stands in its consumer group; ids are None before it has joined."""

    member_id: str | None
    worker: str
    is_leader: bool | None
    generation: int | None
    leader: str | None
    """The member id of the leader, as this member knows it; the JSON has one for the whole group."""
    partitions: tuple[TopicPartition, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            "member_id": self.member_id,
            "worker": self.worker,
            "is_leader": self.is_leader,
            "generation": self.generation,
            "partitions": self.partitions,
        }


@dataclass(frozen=True, slots=True)
class BrokerRow:
    node_id: int
    host: str | None
    port: int | None
    rack: str | None
    controller: bool | None


class TopicRow(NamedTuple):
    """Leader and replicas of a partition. A tuple, because every worker reports all partitions of its topics."""

    topic: str
    partition: int
    leader_id: int | None
    replica_nodes: tuple[int, ...] | None
    isr_nodes: tuple[int, ...] | None
    offline: tuple[int, ...] | None

    def to_json(self) -> JsonObject:
        return self._asdict()


@dataclass(frozen=True, slots=True)
class PingRow:
    """The proof that an agent is there, and what a supervisor judges it by."""

    name: str
    pid: int
    version: str | None = None
    state: AgentState | None = None
    batches_total: int | None = None
    lag: int | None = None
    """Messages; None while the brokers' offsets are too old to rely on."""
    progress: int | None = None
    """Changes with each batch and while a long one stores messages."""
    main_thread_age_seconds: float | None = None
    """Since the last turn of its main thread."""


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method that an agent serves; `params` as it describes them."""

    method: str
    rpc: str | None = None
    summary: str | None = None
    params: tuple[JsonObject, ...] = ()
    deadline_ms: int | None = None
    changes: bool | None = None
