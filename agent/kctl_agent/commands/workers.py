"""`workers`: what this worker or sinker is doing, since when, how fast, and what went wrong last."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable

from kctl_agent.commands.base import Command
from kctl_agent.snapshot import Event, Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["WORKERS", "answer"]


def answer(snapshot: Snapshot, _params: JsonObject, now: float) -> JsonObject:
    """State and pace. `batch_running_seconds` is null between batches; seconds and bytes everywhere. Of a sinker
    there is `sinker` as well, and a batch is a call of its handler; of an engine there is `engine`; of a worker with
    mode `lake` there are `commits` to its table."""
    work = snapshot.work
    table = None if snapshot.storage is None else snapshot.storage.table
    return {
        "name": snapshot.name,
        "kind": snapshot.kind,
        "state": snapshot.state,
        "state_seconds": max(now - snapshot.state_since, 0.0),
        "pid": os.getpid(),
        "uptime_seconds": max(now - snapshot.started_at, 0.0),
        "rss_bytes": snapshot.rss_bytes,
        "query_id": work.query_id,
        "batch_id": work.batch_id,
        "last_batch_seconds": work.last_batch_seconds,
        "last_batch_rows": work.last_batch_rows,
        "rows_per_second": work.rows_per_second,
        "batch_running_seconds": None if work.batch_started_at is None else max(now - work.batch_started_at, 0.0),
        "rows_total": work.rows_total,
        "batches_total": work.batches_total,
        "queries_failed": work.queries_failed,
        "last_error": work.last_error,
        "waiting_for": None if snapshot.waiting_for is None else dataclasses.asdict(snapshot.waiting_for),
        "left_out": _reasons(work.left_out),
        "isolated": _reasons(work.isolated),
        "paused": [scope.to_json() for scope in snapshot.paused],
        "events": [_event(event) for event in snapshot.events],
        **({} if table is None else {"commits": {"failed": table.commits_failed, "retried": table.commits_retried}}),
        **({} if snapshot.sinker is None else {"sinker": dataclasses.asdict(snapshot.sinker)}),
        **({} if snapshot.engine is None else {"engine": dataclasses.asdict(snapshot.engine)}),
    }


def _reasons(partitions: Iterable[tuple[str, int, str]]) -> list[JsonObject]:
    return [{"topic": topic, "partition": number, "why": why} for topic, number, why in partitions]


def _event(event: Event) -> JsonObject:
    return {
        "at": event.at,
        "kind": event.kind,
        "topic": event.topic,
        "partition": event.partition,
        "from": event.from_offset,
        "to": event.to_offset,
        "text": event.text,
    }


WORKERS = Command("workers", answer, "state, uptime, memory, query, last batch, rows per second, last error, events")
