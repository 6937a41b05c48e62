"""`workers`: what a worker, a sinker, an engine or an attached application is doing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kctl_agent.replies.encode import age, counter, optional, renamed

__all__ = [
    "CommitStats",
    "EngineStats",
    "Event",
    "Outside",
    "Scope",
    "SinkerStats",
    "UnreadPartition",
    "WaitingFor",
    "WorkerReply",
]

Outside: TypeAlias = Literal["brokers", "storage", "engine", "disk"]
"""What a process cannot do without, and cannot bring back."""


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """An outage of something outside, which a process waits for, for as long as it lasts."""

    what: str
    """An `Outside`, as of this release."""
    reason: str | None = None
    since: float | None = None
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class UnreadPartition:
    """A partition that is assigned and not read, or only by a query of its own, with the reason."""

    topic: str
    partition: int
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """What is not to be read, since when and on whose request: a topic, one partition of it, or (topic None) all."""

    topic: str | None
    partition: int | None
    by: str
    since: float
    """Unix seconds."""

    def covers(self, topic: str, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)


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
    to: int | None = None
    worker: str | None = optional()
    """Which it happened to, where a master names it."""


renamed(Event, "from_offset", "from")


@dataclass(frozen=True, slots=True)
class SinkerStats:
    """What became of messages since this sinker process started, and how its handler does.

    `handled`, `retried`, `dead` and `lost` count settled messages: gone for good, to come again, dead letters, and
    those whose lease was lost in the meantime.
    """

    handled: int | None = counter()
    retried: int | None = counter()
    dead: int | None = counter()
    lost: int | None = counter()
    in_flight: int | None = None
    handler_errors: int | None = counter()
    """Calls that raised, took too long, or returned something else than a bool for each message."""
    handler_p50_seconds: float | None = None
    handler_p99_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What an engine's JVM holds just now."""

    workers: int | None = None
    """So many have a gateway into it."""
    queries: int | None = None
    """So many streaming queries are active, those of workers that have just ended included."""
    heap_used_bytes: int | None = None
    """Garbage that was not collected yet included."""
    heap_max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CommitStats:
    """Commits of a worker to its table, since it started."""

    failed: int | None = counter()
    retried: int | None = counter()
    """Decided anew because others got ahead."""


@dataclass(frozen=True, slots=True)
class WorkerReply:
    """What a process reports of itself. Of a sinker a batch is a call of its handler, and rows are messages."""

    name: str = ""
    kind: str | None = None
    state: str | None = None
    """`starting`, `joining`, `assigned`, `running`, `rebalancing`, `paused`, `throttled`, `idle`, `failed`, `stopping`
    as of this release."""
    state_seconds: float | None = age()
    pid: int | None = None
    uptime_seconds: float | None = age()
    rss_bytes: int | None = None
    query_id: str | None = None
    batch_id: int | None = None
    last_batch_seconds: float | None = None
    last_batch_rows: int | None = None
    rows_per_second: float | None = None
    batch_running_seconds: float | None = age()
    """None between batches."""
    rows_total: int | None = counter()
    batches_total: int | None = counter()
    queries_failed: int | None = counter()
    """How often a query has ended by itself, with an error; each time another one was begun."""
    last_error: str | None = None
    waiting_for: WaitingFor | None = None
    """Of several outages the one that began first."""
    left_out: tuple[UnreadPartition, ...] | None = None
    """Assigned and not to be read just now, while the others are."""
    isolated: tuple[UnreadPartition, ...] | None = None
    """In a query of its own, which fails."""
    paused: tuple[Scope, ...] | None = None
    """What it was asked not to read."""
    events: tuple[Event, ...] = ()
    sinker: SinkerStats | None = optional()
    """Of a sinker only."""
    engine: EngineStats | None = optional()
    """Of an engine only, once its JVM is there."""
    commits: CommitStats | None = optional()
    """Of a worker with mode `lake` only."""

    @classmethod
    def starting(cls, name: str, kind: str = "") -> WorkerReply:
        """Of a process that has done nothing yet."""
        return cls(
            name,
            kind,
            "starting",
            pid=os.getpid(),
            rows_total=0,
            batches_total=0,
            queries_failed=0,
            left_out=(),
            isolated=(),
            paused=(),
        )
