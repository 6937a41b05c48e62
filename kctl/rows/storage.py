"""What waits in the storage of one worker, or in all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from kctl.rows import fields
from kctl_agent.wire import JsonObject

__all__ = ["StorageRow", "StorageStats", "TableStats", "storage_row", "storage_stats"]


@dataclass(frozen=True, slots=True)
class TableStats:
    """A table that batches become rows of."""

    version: int | None = None
    rows: int | None = None
    files: int | None = None
    small_files: int | None = None
    """Below half of what compaction aims at."""
    last_commit_seconds: float | None = None
    """Since anybody's last commit."""


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
    error: str | None = None
    """Why it could not be counted; None when it could."""
    age_seconds: float | None = None
    """Since it was last counted with success."""
    table: TableStats | None = field(default=None, metadata={"is_left_out": True})
    """Of mode `lake` only; the JSON of others has no such field."""


@dataclass(frozen=True, slots=True)
class StorageRow(StorageStats):
    """The storage of one worker."""

    storage: str | None = None
    """Equal for workers that share one. None: the worker has not opened its storage yet."""


S = TypeVar("S", bound=StorageStats)


def storage_row(result: JsonObject) -> StorageRow:
    return replace(_counted(StorageRow, result), storage=fields.text(result, "storage"))


def storage_stats(result: JsonObject) -> StorageStats:
    return _counted(StorageStats, result)


def _counted(kind: type[S], result: JsonObject) -> S:
    return kind(
        pending=fields.whole(result, "pending"),
        delayed=fields.whole(result, "delayed"),
        processing=fields.whole(result, "processing"),
        dead=fields.whole(result, "dead"),
        bytes=fields.whole(result, "bytes"),
        limit=fields.whole(result, "limit"),
        limit_bytes=fields.whole(result, "limit_bytes"),
        dead_limit=fields.whole(result, "dead_limit"),
        free_bytes=fields.whole(result, "free_bytes"),
        full=fields.text(result, "full"),
        error=fields.text(result, "error"),
        age_seconds=fields.number(result, "age_seconds"),
        table=_table(result),
    )


def _table(result: JsonObject) -> TableStats | None:
    found = result.get("table")
    if found is None:
        return None
    table = fields.object_of(found, "table")
    return TableStats(
        version=fields.whole(table, "version"),
        rows=fields.whole(table, "rows"),
        files=fields.whole(table, "files"),
        small_files=fields.whole(table, "small_files"),
        last_commit_seconds=fields.number(table, "last_commit_seconds"),
    )
