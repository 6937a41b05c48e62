"""`workers`: what a worker, sinker, engine or attached application is doing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kctl_agent.replies.encode import renamed
from kctl_agent.replies.fields import age, counter, optional, value

Outside: TypeAlias = Literal["brokers", "storage", "registry", "engine", "disk"]
"""A process depends on these external systems and cannot restore them."""

# Without a docstring, a dataclass makes one from its signature, which slows every `kctl status`.


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """The outage that a process waits for."""

    what: str
    """One of `brokers`, `storage`, `registry`, `engine`, `disk`; later releases may have more values."""
    reason: str | None = None
    since: float | None = None
    """When the outage began, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class UnreadPartition:
    """A partition whose record at `offset` cannot be read. If `offset` is None, no record can be read."""

    topic: str
    partition: int
    why: str | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """What an operation has paused: a partition, a topic, or everything."""

    topic: str | None
    partition: int | None
    by: str
    since: float
    """Unix seconds."""

    def covers(self, topic: str, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)


@dataclass(frozen=True, slots=True)
class Event:
    """One of a worker's latest events."""

    at: float
    """Unix seconds."""
    kind: str
    text: str
    topic: str | None = None
    partition: int | None = None
    from_offset: int | None = None
    to: int | None = None
    worker: str | None = optional()
    """The worker that an event of the master is about."""


renamed(Event, "from_offset", "from")


@dataclass(frozen=True, slots=True)
class SinkerStats:
    """Counters of one sinker since its process started, and the state of its handler."""

    handled: int | None = counter(
        "kctl_sinker_messages_total",
        "Messages that a sinker has settled since its start: `handled`, `retried` (will be tried again), `dead` "
        "(dead letters), or `lost` (handled again, because the lease had expired).",
        ("outcome", "handled"),
    )
    """Messages handled by the sinker since its start. `retried`, `dead` and `lost` count other outcomes
    (metrics.md, `kctl_sinker_messages_total`)."""
    retried: int | None = counter("kctl_sinker_messages_total", "", ("outcome", "retried"))
    dead: int | None = counter("kctl_sinker_messages_total", "", ("outcome", "dead"))
    lost: int | None = counter("kctl_sinker_messages_total", "", ("outcome", "lost"))
    in_flight: int | None = value(
        "kctl_sinker_in_flight_messages", "Messages that the sinker has claimed but not settled yet."
    )
    handler_errors: int | None = counter(
        "kctl_sinker_handler_errors_total",
        "Calls of the handler that raised, took too long or returned a wrong result.",
    )
    failing_seconds: float | None = age()
    """For how long all tries have failed; None if these are fewer than ten, or the last one was over a minute ago."""
    handler: str | None = None
    """The handler's name in the configuration."""
    call_seconds: float | None = age(
        "kctl_sinker_call_running_seconds",
        "How long the sinker's present call of the handler has been running. Absent between calls.",
    )
    recent_tries: int | None = None
    """Messages passed to the handler in calls that ended in the last minute."""
    recent_failures: int | None = None
    """How many of `recent_tries` were not acknowledged."""
    error_class: str | None = None
    """The error class or kind of the last recent failure, never the error's text."""
    handler_p50_seconds: float | None = value(
        "kctl_sinker_handler_duration_seconds",
        "Percentiles (`p50`, `p99`) of the duration of the sinker's latest calls of the handler.",
        ("percentile", "p50"),
    )
    """The median duration of the sinker's latest calls of the handler. `handler_p99_seconds` is the 99th percentile."""
    handler_p99_seconds: float | None = value("kctl_sinker_handler_duration_seconds", "", ("percentile", "p99"))


@dataclass(frozen=True, slots=True)
class EngineStats:
    """State of a shared engine."""

    workers: int | None = value("kctl_engine_workers", "Workers that are connected to the engine's JVM.")
    queries: int | None = value(
        "kctl_engine_queries",
        "Active streaming queries in the engine's JVM, including those of workers that have just ended.",
    )
    heap_used_bytes: int | None = value(
        "kctl_engine_heap_used_bytes",
        "The heap that the engine's JVM uses, including garbage that was not collected yet.",
    )
    heap_max_bytes: int | None = value("kctl_engine_heap_max_bytes", "The maximum heap of the engine's JVM.")


@dataclass(frozen=True, slots=True)
class CommitStats:
    """Counters of commits to a worker's table, since the worker started."""

    failed: int | None = counter(
        "kctl_table_commit_failures_total",
        "Failed commits of the worker to its table since its start. The worker runs their batches again.",
    )
    retried: int | None = counter(
        "kctl_table_commit_retries_total",
        "Commits that the worker repeated because another writer had committed first. This is normal if many "
        "workers fill one table.",
    )


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """A process's report on itself. In a sinker's report, batches are calls of the handler, and rows are messages."""

    name: str = ""
    kind: str | None = None
    state: str | None = None
    """One of `starting`, `joining`, `assigned`, `running`, `rebalancing`, `paused`, `throttled`, `idle`, `failed`,
    `stopping`; later releases may have more."""
    state_seconds: float | None = age()
    pid: int | None = None
    uptime_seconds: float | None = age()
    rss_bytes: int | None = None
    query_id: str | None = None
    batch_id: int | None = value(column="batch")
    last_batch_seconds: float | None = value(
        "kctl_batch_duration_seconds",
        "The duration of the worker's last finished batch.",
        column="last-batch-seconds",
        digits=2,
    )
    last_batch_rows: int | None = None
    rows_per_second: float | None = value(column="rows/s", digits=0)
    batch_running_seconds: float | None = age(
        "kctl_batch_running_seconds", "How long the present batch has been running. Absent between batches."
    )
    rows_total: int | None = counter("kctl_batch_rows_total", "Messages that the worker has stored since its start.")
    batches_total: int | None = counter("kctl_batches_total", "Batches that the worker has finished since its start.")
    batch_seconds_total: float | None = counter(
        "kctl_batch_seconds_total",
        "Seconds that the worker has spent in finished batches since its start.",
    )
    queries_failed: int | None = counter(
        "kctl_worker_query_failures_total",
        "Queries of the worker that ended with an error since its start. The worker's last error has the reason. After "
        "each failure, the worker starts another query.",
    )
    last_error: str | None = None
    waiting_for: WaitingFor | None = None
    """The outage whose end the process waits for. Of several outages, the engine's, or else the one that
    began first."""
    left_out: tuple[UnreadPartition, ...] | None = None
    """Assigned partitions that the worker cannot read at present. It still reads its other partitions."""
    isolated: tuple[UnreadPartition, ...] | None = None
    """Partitions that fail. The worker reads each of them in a separate query."""
    paused: tuple[Scope, ...] | None = None
    """Partitions and topics that an operation has paused."""
    events: tuple[Event, ...] = ()
    sinker: SinkerStats | None = optional()
    """Only for a sinker."""
    engine: EngineStats | None = optional()
    """Only for an engine, once its JVM runs."""
    commits: CommitStats | None = optional()
    """Only for a worker with mode `lake`."""

    @classmethod
    def starting(cls, name: str, kind: str = "") -> WorkerReply:
        return cls(
            name,
            kind,
            "starting",
            pid=os.getpid(),
            rows_total=0,
            batches_total=0,
            batch_seconds_total=0.0,
            queries_failed=0,
            left_out=(),
            isolated=(),
            paused=(),
        )


@dataclass(frozen=True, slots=True)
class PingReply:
    """The reply to `ping`: which process answers, and its progress."""

    pid: int
    name: str = ""
    version: str | None = None
    state: str | None = None
    batches_total: int | None = None
    lag: int | None = None
    """Lag of all partitions that the worker may read; None while the brokers' offsets are too old."""
    progress: int | None = None
    """Increases with each batch, and during a long batch whenever stored offsets move."""
    main_thread_age_seconds: float | None = None
    """Seconds since the last turn of the main thread's loop; None if not measured."""
    waiting_for: WaitingFor | None = None
