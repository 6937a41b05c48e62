"""Workers, sinkers and attached applications: what they report of themselves, and what their supervisor sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kctl.rows import fields
from kctl.rows.partitions import topic_partition
from kctl_agent.wire import JsonObject

__all__ = [
    "NOT_GROUP_MEMBERS",
    "AgentState",
    "CommitStats",
    "EngineStats",
    "EventRow",
    "PauseRow",
    "PingRow",
    "SinkerStats",
    "UnreadRow",
    "WaitingRow",
    "WorkerRow",
    "WorkerStatus",
    "ping_row",
    "ping_rows",
    "supervised_rows",
    "with_statuses",
    "worker_row",
    "worker_statuses",
]

NOT_GROUP_MEMBERS = frozenset({"sinker", "engine"})
"""Kinds of processes that own no partition."""


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

    @property
    def restarts_total(self) -> int:
        return sum(self.restarts.values())

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "kind": self.kind,
            "desired": self.desired,
            "state": self.state,
            "pid": self.pid,
            "since_seconds": self.since_seconds,
            "restarts": self.restarts_total,
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
class WaitingRow:
    """The outage that a process waits for: of `brokers`, `storage`, `engine` or `disk`, as of this release."""

    what: str
    reason: str | None
    since: float | None
    """Unix seconds."""


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
class CommitStats:
    """Commits of a worker to its table, since it started."""

    failed: int | None = None
    retried: int | None = None
    """Decided anew because others got ahead."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What the JVM of an engine holds."""

    workers: int | None = None
    queries: int | None = None
    heap_used_bytes: int | None = None
    heap_max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """What a worker, a sinker, an engine or an attached application is doing. Of a sinker a batch is a call of its
    handler."""

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
    waiting_for: WaitingRow | None = None
    left_out: tuple[UnreadRow, ...] | None = None
    isolated: tuple[UnreadRow, ...] | None = None
    paused: tuple[PauseRow, ...] | None = None
    events: tuple[EventRow, ...] = ()
    sinker: SinkerStats | None = field(default=None, metadata={"is_left_out": True})
    """Of a sinker only; the JSON of others has no such field."""
    engine: EngineStats | None = field(default=None, metadata={"is_left_out": True})
    """Of an engine only, likewise."""
    commits: CommitStats | None = field(default=None, metadata={"is_left_out": True})
    """Of a worker with mode `lake`, likewise."""
    age_seconds: float | None = None
    """Of the reply; None of a supervised one whose agent did not reply."""
    supervisor: WorkerStatus | None = None
    """None of one that is only attached."""


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
    waiting_for: WaitingRow | None = None


_STATES = {state.value: state for state in AgentState}


def ping_row(name: str, result: JsonObject) -> PingRow:
    return PingRow(
        name=name,
        pid=fields.required(fields.whole(result, "pid"), "pid"),
        version=fields.text(result, "version"),
        state=_state(result),
        batches_total=fields.whole(result, "batches_total"),
        lag=fields.whole(result, "lag"),
        progress=fields.whole(result, "progress"),
        main_thread_age_seconds=fields.number(result, "main_thread_age_seconds"),
        waiting_for=_waiting(result),
    )


def worker_row(name: str, result: JsonObject) -> WorkerRow:
    """What a worker reports of itself."""
    return WorkerRow(
        name=name,
        kind=fields.text(result, "kind"),
        state=_state(result),
        state_seconds=fields.number(result, "state_seconds"),
        pid=fields.whole(result, "pid"),
        uptime_seconds=fields.number(result, "uptime_seconds"),
        rss_bytes=fields.whole(result, "rss_bytes"),
        query_id=fields.text(result, "query_id"),
        batch_id=fields.whole(result, "batch_id"),
        last_batch_seconds=fields.number(result, "last_batch_seconds"),
        last_batch_rows=fields.whole(result, "last_batch_rows"),
        rows_per_second=fields.number(result, "rows_per_second"),
        batch_running_seconds=fields.number(result, "batch_running_seconds"),
        rows_total=fields.count(result, "rows_total"),
        batches_total=fields.count(result, "batches_total"),
        queries_failed=fields.count(result, "queries_failed"),
        last_error=fields.text(result, "last_error"),
        waiting_for=_waiting(result),
        left_out=_unread(result, "left_out"),
        isolated=_unread(result, "isolated"),
        paused=_pauses(result),
        events=tuple(map(_event, fields.objects(result, "events") or ())),
        sinker=_sinker(result),
        engine=_engine(result),
        commits=_commits(result),
    )


def ping_rows(result: JsonObject) -> tuple[PingRow, ...]:
    """The processes that answer; a master that answers for itself is one row."""
    rows = fields.objects(result, "rows")
    return tuple(ping_row(_name(row), row) for row in ([result] if rows is None else rows))


def supervised_rows(result: JsonObject) -> tuple[WorkerRow, ...]:
    """The workers in the master's answer, each with what its supervisor sees."""
    return tuple(map(_supervised_row, fields.objects(result, "rows") or ()))


def worker_statuses(result: JsonObject) -> tuple[WorkerStatus, ...]:
    """The workers as their supervisor sees them."""
    return tuple(map(_worker_status, fields.objects(result, "rows") or ()))


def with_statuses(rows: Iterable[WorkerRow], statuses: Iterable[WorkerStatus]) -> list[WorkerRow]:
    """A row of each that is supervised, in the supervisor's order, with its status; then those only attached."""
    own = {row.name: row for row in rows}
    supervised = [
        replace(own.pop(status.name, WorkerRow(status.name, status.kind, pid=status.pid)), supervisor=status)
        for status in statuses
    ]
    return [*supervised, *own.values()]


def _supervised_row(row: JsonObject) -> WorkerRow:
    supervisor = row.get("supervisor")
    return replace(
        worker_row(_name(row), row),
        age_seconds=fields.number(row, "age_seconds"),
        supervisor=None if supervisor is None else _worker_status(fields.object_of(supervisor, "supervisor")),
    )


def _worker_status(row: JsonObject) -> WorkerStatus:
    causes = fields.object_of(fields.required(row.get("restarts_by_cause"), "restarts_by_cause"), "restarts_by_cause")
    return WorkerStatus(
        name=_name(row),
        kind=fields.required(fields.text(row, "kind"), "kind"),
        desired=fields.required(fields.text(row, "desired"), "desired"),
        state=fields.required(fields.text(row, "state"), "state"),
        pid=fields.whole(row, "pid"),
        since_seconds=fields.required(fields.number(row, "since_seconds"), "since_seconds"),
        restarts={cause: fields.required(fields.whole(causes, cause), cause) for cause in causes},
        next_try_seconds=fields.number(row, "next_try_seconds"),
        last_error=fields.text(row, "last_error"),
        log=fields.required(fields.text(row, "log"), "log"),
        resident_bytes=fields.whole(row, "resident_bytes"),
        warning=fields.text(row, "warning"),
        paused=_pauses(row) or (),
    )


def _name(row: JsonObject) -> str:
    return fields.required(fields.text(row, "name"), "name")


def _state(row: JsonObject) -> AgentState | None:
    """None too for one of a newer release, which is not known here."""
    return _STATES.get(fields.text(row, "state") or "")


def _unread(row: JsonObject, name: str) -> tuple[UnreadRow, ...] | None:
    objects = fields.objects(row, name)
    if objects is None:
        return None
    return tuple(UnreadRow(*topic_partition(each), fields.text(each, "why")) for each in objects)


def _waiting(row: JsonObject) -> WaitingRow | None:
    value = row.get("waiting_for")
    if value is None:
        return None
    found = fields.object_of(value, "waiting_for")
    what = fields.required(fields.text(found, "what"), "what")
    return WaitingRow(what, fields.text(found, "reason"), fields.number(found, "since"))


def _pauses(row: JsonObject) -> tuple[PauseRow, ...] | None:
    objects = fields.objects(row, "paused")
    if objects is None:
        return None
    return tuple(
        PauseRow(
            fields.text(each, "topic"),
            fields.whole(each, "partition"),
            fields.text(each, "by"),
            fields.number(each, "since"),
        )
        for each in objects
    )


def _event(row: JsonObject) -> EventRow:
    return EventRow(
        at=fields.required(fields.number(row, "at"), "at"),
        kind=fields.required(fields.text(row, "kind"), "kind"),
        text=fields.required(fields.text(row, "text"), "text"),
        topic=fields.text(row, "topic"),
        partition=fields.whole(row, "partition"),
        from_offset=fields.whole(row, "from"),
        to_offset=fields.whole(row, "to"),
    )


def _sinker(row: JsonObject) -> SinkerStats | None:
    value = row.get("sinker")
    if value is None:
        return None
    stats = fields.object_of(value, "sinker")
    return SinkerStats(
        handled=fields.count(stats, "handled"),
        retried=fields.count(stats, "retried"),
        dead=fields.count(stats, "dead"),
        lost=fields.count(stats, "lost"),
        in_flight=fields.whole(stats, "in_flight"),
        handler_errors=fields.count(stats, "handler_errors"),
        handler_p50_seconds=fields.number(stats, "handler_p50_seconds"),
        handler_p99_seconds=fields.number(stats, "handler_p99_seconds"),
    )


def _engine(row: JsonObject) -> EngineStats | None:
    value = row.get("engine")
    if value is None:
        return None
    stats = fields.object_of(value, "engine")
    return EngineStats(
        workers=fields.count(stats, "workers"),
        queries=fields.count(stats, "queries"),
        heap_used_bytes=fields.count(stats, "heap_used_bytes"),
        heap_max_bytes=fields.count(stats, "heap_max_bytes"),
    )


def _commits(row: JsonObject) -> CommitStats | None:
    value = row.get("commits")
    if value is None:
        return None
    stats = fields.object_of(value, "commits")
    return CommitStats(failed=fields.count(stats, "failed"), retried=fields.count(stats, "retried"))
