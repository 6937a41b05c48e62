"""`block_size`: how much waits in the storage this worker puts into."""

from __future__ import annotations

from kctl_agent.commands.base import Command
from kctl_agent.errors import NotReady
from kctl_agent.snapshot import Snapshot, TableUsage
from kctl_agent.wire import JsonObject

__all__ = ["BLOCK_SIZE", "answer"]


def answer(snapshot: Snapshot, _params: JsonObject, now: float) -> JsonObject:
    """Messages by state (`delayed` ones are pending too), bytes, limits; why the storage is full, or could not be
    counted, and the age of the last count; `storage` is equal for workers that share one. Of a table, in which none
    wait, there is `table` as well.

    Raises:
        NotReady: the worker has not opened its storage yet.
    """
    storage = snapshot.storage
    if storage is None:
        raise NotReady(f"{snapshot.name} has not opened its storage yet: ask again")
    return {
        "storage": storage.identity,
        "pending": storage.pending,
        "delayed": storage.delayed,
        "processing": storage.processing,
        "dead": storage.dead,
        "bytes": storage.bytes,
        "limit": storage.limit,
        "limit_bytes": storage.limit_bytes,
        "dead_limit": storage.dead_limit,
        "free_bytes": storage.free_bytes,
        "full": storage.full,
        "error": storage.error,
        "age_seconds": None if storage.counted_at is None else max(now - storage.counted_at, 0.0),
        **({} if storage.table is None else {"table": _table(storage.table, now)}),
    }


def _table(table: TableUsage, now: float) -> JsonObject:
    return {
        "version": table.version,
        "rows": table.rows,
        "files": table.files,
        "small_files": table.small_files,
        "last_commit_seconds": None if table.committed_at is None else max(now - table.committed_at, 0.0),
    }


BLOCK_SIZE = Command(
    "block_size", answer, "messages and bytes in the storage: pending, delayed, processing, dead; the limits"
)
