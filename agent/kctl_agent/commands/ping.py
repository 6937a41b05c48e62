"""`ping`: the proof that an agent is there. A connect that succeeds proves nothing; this answer does."""

from __future__ import annotations

import os
from dataclasses import asdict, replace

from kctl_agent import __version__
from kctl_agent.commands.base import Command
from kctl_agent.operations import Inbox
from kctl_agent.snapshot import Snapshot
from kctl_agent.wire import JsonObject

__all__ = ["PING", "answer", "ping_of"]


_OLD_SECONDS = 15.0
"""Ends of the log older than this are too old for the lag of now."""


def answer(snapshot: Snapshot, _params: JsonObject, now: float, taken_at: float | None = None) -> JsonObject:
    """Which process answers, and what a supervisor judges it by.

    `lag` over all partitions that it may read, null while it is not known; `progress`, which rises with each batch and,
    while one runs for long, with what it has stored; `main_thread_age_seconds`, since the last turn of the main thread,
    null where nobody measures it; `waiting_for`, the outage that it waits for, null while there is none.
    """
    return {
        "name": snapshot.name,
        "pid": os.getpid(),
        "version": __version__,
        "state": snapshot.state,
        "batches_total": snapshot.work.batches_total,
        "lag": _lag(snapshot, now),
        "progress": snapshot.work.progress,
        "main_thread_age_seconds": None if taken_at is None else max(now - taken_at, 0.0),
        "waiting_for": None if snapshot.waiting_for is None else asdict(snapshot.waiting_for),
    }


def _lag(snapshot: Snapshot, now: float) -> int | None:
    not_read = {(topic, partition) for topic, partition, _ in (*snapshot.work.left_out, *snapshot.work.isolated)}
    total = 0
    for stats in snapshot.partitions:
        if stats.paused or (stats.topic, stats.partition) in not_read:
            continue
        if stats.taken_at is None or now - stats.taken_at > _OLD_SECONDS or stats.lag is None:
            return None
        total += stats.lag
    return total if snapshot.partitions else None


PING = Command(
    "ping", answer, "who answers: name, pid, version, state, progress", deadline_ms=1000, needs_snapshot=False
)


def ping_of(inbox: Inbox) -> Command:
    """A ping that also reports how long ago the thread which owns the work took its operations. Not from the snapshot,
    which another thread publishes: that one may wait for a storage while the main thread does its turns."""

    def measured(snapshot: Snapshot, params: JsonObject, now: float) -> JsonObject:
        return answer(snapshot, params, now, inbox.taken_at)

    return replace(PING, answer=measured)
