"""The immutable snapshot of a worker or sinker that its owning thread publishes and its agent answers from.

Plain values only: an answer is a matter of microseconds, whatever Spark or Kafka are doing. Unknown is None, never 0 or
-1.
Times are `time.monotonic()` seconds of this process; answers turn them into ages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kctl_agent.operations import Scope

__all__ = [
    "BrokerMetadata",
    "EngineStats",
    "Event",
    "MemberInfo",
    "Outside",
    "PartitionMetadata",
    "PartitionStats",
    "SinkerStats",
    "Snapshot",
    "StorageUsage",
    "TableUsage",
    "WaitingFor",
    "WorkStats",
]


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """One assigned partition. `start` and `end` are the broker's log start and end offset, taken at `taken_at`."""

    topic: str
    partition: int
    start: int | None
    committed: int | None
    position: int | None
    end: int | None
    last_timestamp: float | None
    """Unix seconds of the last stored record's Kafka timestamp."""
    taken_at: float | None
    paused: bool = False
    """On request: it stays with this worker, and nobody reads it."""
    reset: str = "earliest"
    """Where the group begins that has committed nothing: `earliest` or `latest`."""

    @property
    def lag(self) -> int | None:
        """As the master counts it (`kctl.rows`): from the committed offset to the end offset, never negative.
        Where nothing was ever committed, from the log start (`earliest`) or the position (`latest`); None when one of
        them is unknown."""
        first = self.committed
        if first is None:
            first = self.start if self.reset == "earliest" else self.position
        if self.end is None or first is None:
            return None
        return max(self.end - first, 0)


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """Where this worker stands in its consumer group; ids are None before it has joined."""

    group: str
    assignor: str
    member_id: str | None = None
    generation: int | None = None
    leader: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerMetadata:
    node_id: int
    host: str
    port: int
    rack: str | None
    controller: bool


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    topic: str
    partition: int
    leader_id: int | None
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TableUsage:
    """A table that batches become rows of, as it was last counted, and this process's commits to it."""

    version: int | None = None
    rows: int | None = None
    files: int | None = None
    small_files: int | None = None
    """Below half of what compaction aims at."""
    committed_at: float | None = None
    """When somebody last committed to it."""
    commits_failed: int = 0
    commits_retried: int = 0
    """How often others got ahead of a commit in a way that had it decided anew."""


@dataclass(frozen=True, slots=True)
class StorageUsage:
    """Messages by state, and bytes. `identity` is equal for workers that share one storage."""

    identity: str
    pending: int | None = None
    processing: int | None = None
    dead: int | None = None
    bytes: int | None = None
    limit: int | None = None
    delayed: int | None = None
    """Of the pending ones, how many wait for their next try."""
    limit_bytes: int | None = None
    dead_limit: int | None = None
    free_bytes: int | None = None
    """What is left where the storage lies: on its disk, or of the Redis' `maxmemory`."""
    full: str | None = None
    """Why workers take no new batch, in one sentence; None while there is room."""
    counted_at: float | None = None
    """When it was last counted with success; None: not yet."""
    error: str | None = None
    """Why it could not be counted since."""
    table: TableUsage | None = None
    """Of mode `lake` only."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something an operator wants to know later: a reset that was honoured, records lost, a rebalance."""

    at: float
    """Unix seconds."""
    kind: str
    text: str
    topic: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None


Outside: TypeAlias = Literal["brokers", "storage", "engine", "disk"]
"""What a process cannot do without, and cannot bring back."""


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """An outage of something outside, which a process waits for, for as long as it lasts."""

    what: Outside
    reason: str
    since: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class WorkStats:
    """What the pipeline is doing. `batch_started_at` is set while a batch runs."""

    query_id: str | None = None
    batch_id: int | None = None
    batch_started_at: float | None = None
    last_batch_seconds: float | None = None
    last_batch_rows: int | None = None
    rows_per_second: float | None = None
    rows_total: int = 0
    batches_total: int = 0
    last_error: str | None = None
    queries_failed: int = 0
    """How often a query has ended by itself, with an error; each time another one was begun."""
    left_out: tuple[tuple[str, int, str], ...] = ()
    """Topic, partition, reason: what is assigned and cannot be read just now, while the others are."""
    isolated: tuple[tuple[str, int, str], ...] = ()
    """The same of what is in a query of its own, which fails."""
    progress: int = 0
    """Rises with each batch and, while one runs for long, whenever stored offsets have moved."""


@dataclass(frozen=True, slots=True)
class SinkerStats:
    """What became of messages since this sinker process started, and how its handler does.

    `handled`, `retried`, `dead` and `lost` count settled messages: gone for good, to come again, dead letters, and
    those whose lease was lost in the meantime.
    """

    handled: int = 0
    retried: int = 0
    dead: int = 0
    lost: int = 0
    in_flight: int = 0
    handler_errors: int = 0
    """Calls that raised, took too long, or returned something else than a bool for each message."""
    handler_p50_seconds: float | None = None
    handler_p99_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What an engine's JVM holds just now."""

    workers: int
    """So many have a gateway into it."""
    queries: int
    """So many streaming queries are active, those of workers that have just ended included."""
    heap_used_bytes: int
    """Garbage that was not collected yet included."""
    heap_max_bytes: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything an agent can answer at one moment."""

    name: str
    kind: str
    state: str
    state_since: float
    started_at: float
    published_at: float
    member: MemberInfo | None = None
    partitions: tuple[PartitionStats, ...] = ()
    brokers: tuple[BrokerMetadata, ...] | None = None
    topics: tuple[PartitionMetadata, ...] | None = None
    storage: StorageUsage | None = None
    work: WorkStats = field(default_factory=WorkStats)
    rss_bytes: int | None = None
    events: tuple[Event, ...] = ()
    paused: tuple[Scope, ...] = ()
    """What it was asked not to read."""
    waiting_for: WaitingFor | None = None
    """Of several outages the one that began first."""
    sinker: SinkerStats | None = None
    """Of a sinker only; its `work` counts handled messages and calls of the handler."""
    engine: EngineStats | None = None
    """Of an engine only, once its JVM is there."""
